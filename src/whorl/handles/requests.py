"""The requests of streams and UDP handles: writes, connections, shutdowns, and their queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import limits
from whorl.core.callback import current_context
from whorl.core.handle import Handle, Request
from whorl.core.kernel.errors import os_error

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    Ended = Callable[[Any, OSError | None], object]


class StreamRequest(Request):
    """An operation in flight; at its end `callback(request, error)` is called."""

    def __init__(self, handle: Handle, callback: Ended | None) -> None:
        self._set_up(handle, callback)
        self._begin()

    def _set_up(self, handle: Handle, callback: Ended | None) -> None:
        """Set the attributes, as `__init__` does, but do not keep the loop alive yet."""
        if callback is not None and not callable(callback):
            raise TypeError(f"a callable object was expected, got {callback!r}")
        handle._loop._check_closed()
        self._loop = handle._loop
        self.data: Any = None
        self._pending = False
        self.handle: Handle = handle
        self._callback: Any = callback
        self._context: Any = None if callback is None else current_context()
        self._code = 0  # the error number of the result, or 0
        self._next: StreamRequest | None = None  # the next request in its queue

    def _finish(self, code: int) -> None:
        """End the request and call back; a `code` of 0 is success, any other an error number."""
        self._end()
        callback, self._callback = self._callback, None
        if callback is not None:
            call_with_two(self._context, callback, self, os_error(code) if code else None)


class Write(StreamRequest):
    """Bytes on their way to the kernel (libuv: ``uv_write_t``)."""

    def __init__(self, handle: Handle, callback: Ended | None) -> None:
        StreamRequest.__init__(self, handle, callback)
        self._target = 0  # the stream's total of sent bytes once this write has been sent


class Connect(StreamRequest):
    """A connection being made (libuv: ``uv_connect_t``)."""


class Shutdown(StreamRequest):
    """The end of writing, once all data has been written (libuv: ``uv_shutdown_t``)."""


class RequestQueue:
    """Requests in the order in which they came. Each is in one queue at a time, and knows the next one."""

    def __init__(self) -> None:
        self._first: StreamRequest | None = None
        self._last: StreamRequest | None = None
        self._size = 0

    def push(self, request: StreamRequest) -> None:
        """Append a request."""
        if self._last is None:
            self._first = request
        else:
            self._last._next = request
        self._last = request
        self._size += 1

    def push_completed(self, request: StreamRequest, code: int) -> None:
        """Append a finished request, with the code of its result."""
        request._code = code
        self.push(request)

    def pop(self) -> StreamRequest:
        """Take the first request out."""
        request = self._first
        assert request is not None
        self._first = request._next
        request._next = None
        if self._first is None:
            self._last = None
        self._size -= 1
        return request


# The freelist: finished writes that had no other reference, linked by `_next`; compiled only.
_freelist: StreamRequest | None = None
_freelist_size = 0


def new_write(handle: Handle, callback: Ended | None) -> Write:
    """Return a `Write` that does not keep the loop alive yet, made without the cost of calling its class."""
    global _freelist, _freelist_size
    first: Any = _freelist
    if first is None:
        request = Write.__new__(Write)
    else:
        _freelist = first._next
        first._next = None
        _freelist_size -= 1
        # Other code may have found it among the objects that the collector shows.
        request = first if has_single_reference(first) else Write.__new__(Write)
    request._set_up(handle, callback)
    request._target = 0
    return request


def recycle_write(request: StreamRequest) -> None:
    """Put a finished write on the freelist for `new_write`, if only the caller refers to it.

    Making and freeing objects that the collector watches is a third of the cost of a write.
    """
    global _freelist, _freelist_size
    if (
        has_single_reference(request)
        and type(request) is Write
        and _freelist_size < limits.WRITE_FREELIST_SIZE
    ):
        request.data = None  # first: freeing it may run any code
        if request._pending:
            return
        request._loop = request.handle = request._context = None  # type: ignore[assignment]
        request._next = _freelist
        _freelist = request
        _freelist_size += 1


def contiguous(data: Buffer) -> bytes | memoryview:
    """Return the bytes of `data` in one piece; copy them only if they are in several."""
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    return view.cast("B") if view.c_contiguous and view.nbytes else view.tobytes()


if not cython.compiled:
    from whorl.core.callback import call_with_two, has_single_reference
