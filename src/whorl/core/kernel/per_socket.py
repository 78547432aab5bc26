"""A kernel for one socket that overrides methods: it calls them in the place of the system.

asyncio receives and sends by the methods of the socket object that it is given. A subclass of Python's socket
may count, delay or wrap the data, and a test may replace a method. They see every byte here too.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from typing import TYPE_CHECKING, Any

from whorl.core.kernel.errors import negative_errno, os_error
from whorl.core.kernel.kernel import Kernel
from whorl.core.kernel.socket_overrides import SOCKET, overrides_method
from whorl.core.limits import WRITE_VECTORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer, WriteableBuffer

_SENDS_VECTORS = sys.version_info >= (3, 12)  # in earlier versions asyncio's transports do not use sendmsg


def overrides_io(sock: Any) -> bool:
    """Return whether a socket object receives or sends in another way than Python's socket class."""
    if not isinstance(sock, SOCKET):
        return all(callable(getattr(sock, name, None)) for name in ("recv", "send"))
    return overrides_method(sock, "recv", "recv_into", "send", "sendmsg")


class SocketKernel(Kernel):
    """The real kernel, except that it calls one socket's overridden methods."""

    def __init__(self, sock: Any) -> None:
        super().__init__()
        self._object = sock
        self.error: Exception | None = None  # the last exception of its methods

    def recv(self, fd: int, limit: int) -> bytes | int:
        """Return the result of the socket's `recv`."""
        data: bytes | int = self._outcome(lambda: bytes(self._object.recv(limit)))
        return data

    def recv_into(self, fd: int, buffer: WriteableBuffer) -> int:
        """Return how many bytes the socket's `recv_into` has put into the buffer."""
        return int(self._outcome(lambda: self._object.recv_into(buffer)))

    def send(self, fd: int, data: ReadableBuffer, offset: int) -> int:
        """Return how many bytes of the data the socket's `send` takes."""
        rest = memoryview(data)[offset:] if offset else data
        return int(self._outcome(lambda: self._object.send(rest)))

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """Return how many bytes of the chunks the socket's `sendmsg`, or its `send`, takes, as in asyncio."""
        if not _SENDS_VECTORS or not hasattr(self._object, "sendmsg"):
            return self.send(fd, chunks[first], offset)
        vectors: list[Any] = chunks[first : first + WRITE_VECTORS]
        if offset:
            vectors[0] = memoryview(vectors[0])[offset:]
        return int(self._outcome(lambda: self._object.sendmsg(vectors)))

    def _outcome(self, call: Callable[[], Any]) -> Any:
        """Return the result of a method, or a negative error number; keep the exception in `error`."""
        try:
            return call()
        except Exception as error:
            code = -errno.EIO
            if isinstance(error, OSError):
                with contextlib.suppress(OSError):
                    code = negative_errno(error)
            self.error = error
            return code


def error_of(kernel: Kernel, code: int) -> BaseException:
    """Return the exception for a call of this kernel's that failed with an error number."""
    if isinstance(kernel, SocketKernel) and kernel.error is not None:
        return kernel.error
    return os_error(code)


def kernel_for(kernel: Kernel, sock: Any) -> Kernel:
    """Return the kernel by which to receive from a socket and send to it."""
    if type(kernel) is Kernel and overrides_io(sock):
        return SocketKernel(sock)
    return kernel
