"""A kernel for one socket that brings its own methods: they are called where the system is called for others.

asyncio receives and sends by the methods of the socket object that it is given. So a subclass of
Python's that counts, delays or wraps what goes through it, and a test that replaces a method, see
every byte here too.
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

_SENDS_VECTORS = sys.version_info >= (3, 12)  # before, asyncio's transports do not use sendmsg


def has_own_methods(sock: Any) -> bool:
    """Return whether a socket object receives or sends in another way than Python's socket class."""
    if not isinstance(sock, SOCKET):
        return all(callable(getattr(sock, name, None)) for name in ("recv", "send"))
    return overrides_method(sock, "recv", "recv_into", "send", "sendmsg")


class SocketKernel(Kernel):
    """The real kernel, but for what one socket's own methods do."""

    def __init__(self, sock: Any) -> None:
        super().__init__()
        self._object = sock
        self.error: Exception | None = None  # the last one of its methods that says more than a number

    def recv(self, fd: int, limit: int) -> bytes | int:
        """What the socket's `recv` gives."""
        data: bytes | int = self._outcome(lambda: bytes(self._object.recv(limit)))
        return data

    def recv_into(self, fd: int, buffer: WriteableBuffer) -> int:
        """How much the socket's `recv_into` has put into the buffer."""
        return int(self._outcome(lambda: self._object.recv_into(buffer)))

    def send(self, fd: int, data: ReadableBuffer, offset: int) -> int:
        """How much of the data the socket's `send` takes."""
        rest = memoryview(data)[offset:] if offset else data
        return int(self._outcome(lambda: self._object.send(rest)))

    def send_many(self, fd: int, chunks: list[bytes], first: int, offset: int) -> int:
        """How much of the chunks the socket's `sendmsg` takes, or its `send`, as in asyncio."""
        if not _SENDS_VECTORS or not hasattr(self._object, "sendmsg"):
            return self.send(fd, chunks[first], offset)
        vectors: list[Any] = chunks[first : first + WRITE_VECTORS]
        if offset:
            vectors[0] = memoryview(vectors[0])[offset:]
        return int(self._outcome(lambda: self._object.sendmsg(vectors)))

    def _outcome(self, call: Callable[[], Any]) -> Any:
        """What a method gives, or a negative error number."""
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
    """The exception for a call of this kernel's that failed with an error number."""
    if isinstance(kernel, SocketKernel) and kernel.error is not None:
        return kernel.error
    return os_error(code)


def kernel_for(kernel: Kernel, sock: Any) -> Kernel:
    """The kernel by which to receive from a socket and send to it."""
    if type(kernel) is Kernel and has_own_methods(sock):
        return SocketKernel(sock)
    return kernel
