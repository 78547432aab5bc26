"""Pipe: UNIX sockets, and the two ends of plain pipes."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.handle import os_error
from whorl.handles.stream_handle import Connect, StreamHandle, answer

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop import Loop

# struct sockaddr_un: a path ends with a zero byte, an abstract name does not.
LONGEST_PATH = 107
LONGEST_ABSTRACT_NAME = 108

Name = str | bytes | os.PathLike[str]


class Pipe(StreamHandle):
    """A UNIX socket, connected or listening, or one end of a pipe (libuv: ``uv_pipe_t``).

    Names are paths; one that begins with a zero byte is in Linux's abstract name space. A name
    that is too long is an error (ENAMETOOLONG), never cut.
    """

    __slots__ = ("_bound_path",)

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._bound_path: bytes | None = None  # the path to be removed when the handle is closed

    def open(self, fd: int) -> None:
        """Take over a UNIX socket or an end of a pipe; the handle will close it.

        What the descriptor was opened for decides whether it is readable and writable. Raises
        OSError: EBUSY if the handle has a descriptor, EEXIST if another handle of the loop watches
        this one, EINVAL if it is a file of another kind.
        """
        self._check_open()
        self._check_unused()
        self._check_free(fd)
        mode = answer(self._kernel.file_mode(fd))
        flags = answer(self._kernel.file_flags(fd)) & os.O_ACCMODE
        if stat.S_ISSOCK(mode):
            self._adopt(answer(self._kernel.adopt_socket(fd)))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            answer(self._kernel.set_blocking(fd, False))
            self._attach(None, fd, False, False)
        else:
            raise os_error(errno.EINVAL)
        self._begin(flags != os.O_WRONLY, flags != os.O_RDONLY)

    def bind(self, name: Name) -> None:
        """Make a socket with this name; a path is removed when the handle is closed.

        Raises OSError: EINVAL if the handle has a descriptor already, EADDRINUSE if the name is taken.
        """
        self._check_open()
        if self._fd >= 0:
            raise os_error(errno.EINVAL)
        encoded = encode(name)
        sock = self._new_socket()
        code = self._kernel.bind(sock, encoded)
        if code < 0:
            self._kernel.close_socket(sock)
            raise os_error(code)
        self._adopt(sock)
        if encoded[0]:
            self._bound_path = encoded

    def listen(self, backlog: int, on_connection: Callable[[Self, OSError | None], object]) -> None:
        """Call `on_connection(server, error)` for each connection, which `accept` then takes.

        While a connection is not accepted, no other is taken. When descriptors or memory run out,
        the callback gets that error, and the handle rests for a while before it goes on.
        """
        self._check_open()
        if self._sock is None:
            raise os_error(errno.EINVAL)
        self._begin_listen(backlog, on_connection)

    def connect(
        self, name: Name, on_connect: Callable[[Connect, OSError | None], object] | None = None
    ) -> Connect:
        """Connect; `on_connect(request, error)` is called when that is over.

        What the system refuses goes to the callback always. Raises OSError: EALREADY while it is
        connecting, EISCONN once it is connected, EINVAL or ENAMETOOLONG if this is no name.
        """
        self._check_open()
        self._check_unconnected()
        encoded = encode(name)
        if self._fd < 0:
            self._adopt(self._new_socket())
        elif self._sock is None:
            raise os_error(errno.ENOTSOCK)
        code = -self._kernel.connect(self._sock, encoded)
        return self._begin_connect(on_connect, 0 if code in (errno.EINPROGRESS, errno.EINTR) else code)

    def getsockname(self) -> str | bytes:
        """The socket's own name; empty if it has none, bytes if it is abstract."""
        return self._name(self._kernel.socket_name)

    def getpeername(self) -> str | bytes:
        """The peer's name; empty if it has none, bytes if it is abstract."""
        return self._name(self._kernel.peer_name)

    def _name(self, ask: Callable[[Any], Any]) -> str | bytes:
        if self.is_closing() or self._sock is None:
            raise os_error(errno.EBADF)
        name: str | bytes = answer(ask(self._sock))
        return name

    def _new_socket(self) -> Any:
        return answer(self._kernel.open_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0))

    def _adopt(self, sock: Any) -> None:
        self._attach(sock, sock.fileno(), True, False)

    def _release(self) -> None:
        if self._bound_path is not None:
            self._kernel.unlink(self._bound_path)
            self._bound_path = None
        StreamHandle._release(self)


def encode(name: Name) -> bytes:
    """A name as the kernel knows it."""
    encoded = os.fsencode(name)
    is_abstract = encoded.startswith(b"\0")
    if not encoded or (not is_abstract and b"\0" in encoded):
        raise OSError(errno.EINVAL, f"not a name of a socket: {name!r}")
    if len(encoded) > (LONGEST_ABSTRACT_NAME if is_abstract else LONGEST_PATH):
        raise OSError(errno.ENAMETOOLONG, f"the name is too long: {name!r}")
    return encoded
