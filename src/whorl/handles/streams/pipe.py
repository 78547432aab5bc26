"""Pipe: UNIX sockets, the two ends of plain pipes, and handles that travel through them.

A descriptor goes with the first byte of its data. So data that was queued before is sent first and by itself,
and never in one call with later data.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core import states
from whorl.core.kernel.errors import check_result, os_error
from whorl.core.limits import MESSAGE_SIZE
from whorl.core.pollers.contract import IOHandle
from whorl.core.states import Event
from whorl.handles.datagrams.udp import UDP
from whorl.handles.requests import Connect, Write, contiguous, new_write
from whorl.handles.streams.engine import Stream
from whorl.handles.streams.stream_handle import StreamHandle
from whorl.handles.streams.tcp import TCP
from whorl.handles.watchers.kinds import HandleKind, kind_of

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.handles.streams.engine import count_sent

if TYPE_CHECKING:
    from typing import Self

    from _typeshed import ReadableBuffer as Buffer

    from whorl.core.loop.loop import Loop


# struct sockaddr_un: a path ends with a zero byte, an abstract name does not.
LONGEST_PATH = 107
LONGEST_ABSTRACT_NAME = 108

Name = str | bytes | os.PathLike[str]


class Pipe(StreamHandle):
    """A UNIX socket, connected or listening, or one end of a pipe (libuv: ``uv_pipe_t``).

    Names are paths; a name that begins with a zero byte is in Linux's abstract name space. A name
    that is too long is an error (ENAMETOOLONG), never cut.

    With `ipc`, handles may be sent and received together with data, between processes too.
    """

    def __init__(self, loop: Loop, *, ipc: bool = False) -> None:
        super().__init__(loop)
        self._ipc = bool(ipc)
        self._received: list[int] = []  # descriptors that wait for `accept`
        self._some_lost = False  # whether descriptors came for which there was no room
        # Descriptors of ours that wait to be sent, each with its place in the stream.
        self._outgoing: list[tuple[int, int]] = []
        self._bound_path: bytes | None = None  # the path to be removed when the handle is closed

    def open(self, fd: int) -> None:
        """Take over a UNIX socket or an end of a pipe; the handle will close it.

        The access mode of the descriptor decides whether the handle is readable and writable. Raises OSError.
        EBUSY: the handle has a descriptor. EEXIST: another handle of the loop watches this one. EINVAL: it is
        a file of another kind.
        """
        self._check_open()
        self._check_unused()
        self._check_free(fd)
        mode = check_result(self._kernel.file_mode(fd))
        flags = check_result(self._kernel.file_flags(fd)) & os.O_ACCMODE
        if stat.S_ISSOCK(mode):
            self._attach_socket(check_result(self._kernel.adopt_socket(fd)))
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            check_result(self._kernel.set_blocking(fd, False))
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
        self._attach_socket(sock)
        if encoded[0]:
            self._bound_path = encoded

    def listen(self, backlog: int, on_connection: Callable[[Self, OSError | None], object]) -> None:
        """Call `on_connection(server, error)` for each connection, which `accept` then takes.

        While a connection is not accepted, no other is taken. When descriptors or memory run out,
        the callback gets that error, and the handle rests for a while before it goes on.
        """
        self._check_open()
        if self._sock is None or self._ipc:
            raise os_error(errno.EINVAL)
        self._begin_listen(backlog, on_connection)

    def connect(
        self, name: Name, on_connect: Callable[[Connect, OSError | None], object] | None = None
    ) -> Connect:
        """Connect the socket; call `on_connect(request, error)` when that is over.

        The callback gets any error of the system. Raises OSError: EALREADY while the handle is connecting,
        EISCONN once it is connected, EINVAL or ENAMETOOLONG if this is no name.
        """
        self._check_open()
        self._check_unconnected()
        encoded = encode(name)
        if self._fd < 0:
            self._attach_socket(self._new_socket())
        elif self._sock is None:
            raise os_error(errno.ENOTSOCK)
        self._held.push_all()
        code = -self._kernel.connect(self._sock, encoded)
        if code in (0, errno.EINPROGRESS, errno.EINTR):
            return self._begin_connect(on_connect, 0)
        request = self._begin_connect(on_connect, code)
        self._readable = self._writable = False
        return request

    def getsockname(self) -> str | bytes:
        """Return the socket's own name; empty if it has none, bytes if it is abstract."""
        return self._name(self._kernel.socket_name)

    def getpeername(self) -> str | bytes:
        """Return the peer's name; empty if it has none, bytes if it is abstract."""
        return self._name(self._kernel.peer_name)

    def chmod(self, events: int) -> None:
        """Let all users read (READABLE) or write (WRITABLE) a bound socket's path (``uv_pipe_chmod``).

        Raises OSError: EINVAL for other flags or none, EBADF if the socket has no path.
        """
        self._check_open()
        if not events or events & ~(Event.READABLE | Event.WRITABLE):
            raise os_error(errno.EINVAL)
        name = self.getsockname()
        if not isinstance(name, str) or not name:
            raise os_error(errno.EBADF)
        mode, _ = check_result(self._kernel.path_status(name))
        if events & Event.READABLE:
            mode |= 0o444
        if events & Event.WRITABLE:
            mode |= 0o222
        check_result(self._kernel.change_mode(name, stat.S_IMODE(mode)))

    # Handles that travel.

    def write2(
        self,
        data: Buffer,
        handle: IOHandle,
        callback: Callable[[Write, OSError | None], object] | None = None,
    ) -> Write:
        """Send all of `data`, and with its first byte the descriptor of `handle` (``uv_write2``).

        The handle may be closed as soon as this has returned; in this process it stays as it is. Raises
        OSError as `write` does, EINVAL without `ipc` or without data, EBADF if `handle` has no descriptor.
        """
        chunk = self._to_send(data, handle)
        copy: int = check_result(self._kernel.duplicate(handle.fileno()))
        try:
            request = new_write(self, callback)
        except BaseException:
            self._kernel.close(copy)
            raise
        is_first = not self._unsent
        self._outgoing.append((self._sent_total + self._unsent, copy))
        self._enqueue(chunk, 0, len(chunk))
        request._target = self._sent_total + self._unsent
        request._begin()
        self._writes.push(request)
        if is_first and self._connect_request is None:
            self._flush()
            if not self._unsent:
                self._run_again()  # to call back
            elif self._handle_state == states.OPEN:
                self._update_interest()
        return request

    def try_write2(self, data: Buffer, handle: IOHandle) -> int:
        """Send what the kernel takes at once of `data`, with the handle; return the size (``uv_try_write2``).

        Raises BlockingIOError if it takes nothing, or if writes are waiting; the handle was not sent then.
        """
        chunk = self._to_send(data, handle)
        if self._connect_request is not None or self._unsent:
            raise os_error(errno.EAGAIN)
        self._held.push_all()
        sent: int = check_result(self._kernel.send_descriptors(self._sock, chunk, [handle.fileno()]))
        count_sent(self, sent)
        return sent

    def pending_count(self) -> int:
        """Return how many received handles wait for `accept`."""
        return len(self._received)

    def pending_type(self) -> HandleKind:
        """Return the kind of the handle that `accept` takes next; UNKNOWN if there is none."""
        return kind_of(self._kernel, self._received[0]) if self._received else HandleKind.UNKNOWN

    def accept(self, client: Any) -> None:
        """Make `client`, a fresh handle, the connection that has arrived, or the next received handle.

        For a received handle `client` must be of the kind that `pending_type` returns, perhaps a UDP. Handles
        that are not accepted are closed together with this one. Raises BlockingIOError if there is none.
        """
        if not self._ipc:
            StreamHandle.accept(self, client)
            return
        self._check_open()
        if not isinstance(client, (Pipe, TCP, UDP)):
            raise TypeError(f"a TCP, Pipe or UDP was expected by accept(), got {client!r}")
        if client.loop is not self.loop:
            raise ValueError("the client belongs to another loop")
        if not self._received:
            raise os_error(errno.EAGAIN)
        client.open(self._received[0])
        del self._received[0]

    def _to_send(self, data: Buffer, handle: IOHandle) -> bytes | memoryview:
        """Return the data to be sent with a handle; raise an error if it cannot be sent."""
        self._check_writable()
        if not isinstance(handle, IOHandle):
            raise TypeError(f"a handle with a descriptor was expected, got {handle!r}")
        chunk = contiguous(data)
        if not self._ipc or self._sock is None or not len(chunk):
            raise os_error(errno.EINVAL)
        if handle.is_closing() or handle.fileno() < 0:
            raise os_error(errno.EBADF)
        return chunk

    def _send_first(self) -> int:
        if not self._outgoing:
            return Stream._send_first(self)
        place, fd = self._outgoing[0]
        chunk = self._chunks[self._first]
        if place > self._sent_total:
            return self._kernel.send(self._fd, chunk, self._offset)
        sent: int = self._kernel.send_descriptors(self._sock, memoryview(chunk)[self._offset :], [fd])
        if sent > 0:
            del self._outgoing[0]
            self._kernel.close(fd)
        return sent

    def _drop_unsent(self) -> None:
        StreamHandle._drop_unsent(self)
        for _, fd in self._outgoing:
            self._kernel.close(fd)
        self._outgoing.clear()

    def _read(self) -> None:
        if self._get_buffer is not None or not self._ipc or self._sock is None:
            StreamHandle._read(self)
        else:
            self._read_message()
        if self._some_lost and self._reading:
            # This process had no room for some descriptors.
            self._stop_reading()
            self._read_failed(errno.EMFILE)
        self._some_lost = False

    def _read_message(self) -> None:
        """Read data and the descriptors that come with it."""
        message = self._kernel.receive_descriptors(self._sock, MESSAGE_SIZE)
        if isinstance(message, int):
            self._note_read(message, MESSAGE_SIZE)
        else:
            data, fds, self._some_lost = message
            self._received.extend(fds)
            self._handle_read(data, MESSAGE_SIZE)

    def _fill(self, buffer: memoryview) -> int:
        if not self._ipc or self._sock is None:
            return StreamHandle._fill(self, buffer)
        message = self._kernel.receive_descriptors_into(self._sock, buffer)
        if isinstance(message, int):
            return message
        size, fds, self._some_lost = message
        self._received.extend(fds)
        return size

    # The socket and its name.

    def _name(self, ask: Callable[[Any], Any]) -> str | bytes:
        if self.is_closing() or self._sock is None:
            raise os_error(errno.EBADF)
        name: str | bytes = check_result(ask(self._sock))
        return name

    def _new_socket(self) -> Any:
        return check_result(self._kernel.open_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0))

    def _attach_socket(self, sock: Any) -> None:
        self._attach(sock, sock.fileno(), True, False)

    def _release(self) -> None:
        if self._bound_path is not None:
            self._kernel.unlink(self._bound_path)
            self._bound_path = None
        for fd in self._received:
            self._kernel.close(fd)
        self._received.clear()
        StreamHandle._release(self)


def encode(name: Name) -> bytes:
    """Return a name in the kernel's form."""
    encoded = os.fsencode(name)
    is_abstract = encoded.startswith(b"\0")
    if not encoded or (not is_abstract and b"\0" in encoded):
        raise OSError(errno.EINVAL, f"not a name of a socket: {name!r}")
    if len(encoded) > (LONGEST_ABSTRACT_NAME if is_abstract else LONGEST_PATH):
        raise OSError(errno.ENAMETOOLONG, f"the name is too long: {name!r}")
    return encoded
