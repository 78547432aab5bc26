"""The socket object of a simulated world: what `socket.socket` makes there.

It is an instance of Python's class, without a descriptor of the system's. All its calls go to the simulated
file.
"""

from __future__ import annotations

import array
import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from whorl.sim.errors import BlockingSocket, Unsimulated, maker
from whorl.sim.files.file import unreferenced
from whorl.sim.files.sockets import SocketFile
from whorl.sim.files.udp import DatagramFile
from whorl.sim.process.addresses import numeric

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whorl.sim.process.owner import KernelOfSockets


def checked(result: int) -> int:
    """Return a result that is not negative; raise the error else."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class SimSocket(socket.socket):
    """A socket of a simulated host."""

    _kernel: KernelOfSockets
    _file: SocketFile
    _fd: int
    _timeout: float | None
    _closed: bool

    def __init__(self, *args: Any, **options: Any) -> None:
        """Do nothing with the arguments of `socket.socket`: `of` has made all that there is."""

    @classmethod
    def of(
        cls, kernel: KernelOfSockets, file: SocketFile, fd: int, *, timeout: float | None = None
    ) -> SimSocket:
        """Return the object for a socket with a descriptor; `timeout` as of `settimeout`."""
        made = cls.__new__(cls)
        made._kernel, made._file, made._fd, made._timeout = kernel, file, fd, timeout
        made._io_refs = 0  # type: ignore[attr-defined]
        made._closed = False
        kernel.host.made_at[fd] = maker()
        return made

    # What it is.

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AddressFamily(self._file.family)

    @property
    def type(self) -> socket.SocketKind:
        return socket.SocketKind(self._file.type)

    @property
    def proto(self) -> int:
        return self._file.protocol

    @property
    def timeout(self) -> float | None:
        return self._timeout

    def fileno(self) -> int:
        return self._fd

    def __repr__(self) -> str:
        return f"<SimSocket fd={self._fd} host={self._file.machine.name} laddr={self._file.name}>"

    def __getstate__(self) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    # Whether it waits.

    def setblocking(self, flag: bool) -> None:
        self.settimeout(None if flag else 0.0)

    def settimeout(self, value: float | None) -> None:
        self._timeout = value
        self._file.flags = self._file.flags & ~os.O_NONBLOCK | (0 if value is None else os.O_NONBLOCK)
        self._kernel.table.changes += 1

    def gettimeout(self) -> float | None:
        return self._timeout

    def getblocking(self) -> bool:
        return self._timeout != 0.0

    def _wait(self, call: str) -> None:
        if self._timeout or not self._file.flags & os.O_NONBLOCK:
            raise BlockingSocket(f"socket.{call} would wait")

    def _result(self, call: str, result: Any, flags: int = 0) -> Any:
        """Return the result of a call, or raise its error."""
        if isinstance(result, int) and result < 0:
            if result == -errno.EAGAIN and not flags & socket.MSG_DONTWAIT:
                self._wait(call)
            raise OSError(-result, os.strerror(-result))
        return result

    def _open(self) -> SocketFile:
        if self._fd < 0 or self._kernel.table.files.get(self._fd) is not self._file:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._file

    # Names and options.

    def getsockname(self) -> Any:
        return self._open().name

    def getpeername(self) -> Any:
        peer = self._open().peer()
        if peer is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return peer

    def setsockopt(self, level: int, option: int, value: Any = None, length: int | None = None) -> None:
        checked(self._open().set_option(level, option, bytes(length or 0) if value is None else value))
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_NODELAY) and value:
            self._kernel.push(self._fd)

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        value = self._open().option(level, option)
        if size:
            return (value.to_bytes(4, "little") if isinstance(value, int) else value)[:size]
        return int.from_bytes(value[:4], "little") if isinstance(value, bytes) else value

    def bind(self, address: Any) -> None:
        file = self._open()
        address = self.numeric(address, "bind")
        code = file.bind(address)
        self._kernel.note("bind", self._fd, address, code)
        checked(code)

    def numeric(self, address: Any, call: str) -> Any:
        """Return an address as the kernel takes it; a wrong one raises what the method `call` raises."""
        return numeric(self._kernel.host, self._file.family, address, call)

    # Connections.

    def listen(self, backlog: int = 128) -> None:
        code = self._open().listen(backlog)
        self._kernel.note("listen", self._fd, backlog, code)
        checked(code)

    def accept(self) -> tuple[socket.socket, Any]:
        file = self._open()
        kernel = self._kernel
        fault = kernel.accept_fault()
        connection = -fault if fault else file.accept()
        if isinstance(connection, int):
            kernel.note("accept", self._fd, connection)
            return self._result("accept", connection)  # type: ignore[no-any-return]
        made = kernel.socket_for(connection)
        if isinstance(made, int):
            file.take_back(connection)
            kernel.note("accept", self._fd, made)
            return self._result("accept", made)  # type: ignore[no-any-return]
        made._timeout = None if self._timeout is None or self._timeout == 0.0 else self._timeout
        kernel.note("accept", self._fd, made.fileno(), connection.peer_name)
        return made, connection.peer_name

    def connect(self, address: Any) -> None:
        code = self._connect(address, "connect")
        if code:
            if code == errno.EINPROGRESS:
                self._wait("connect")
            raise OSError(code, os.strerror(code))

    def connect_ex(self, address: Any) -> int:
        return self._connect(address, "connect_ex") if self._fd >= 0 else errno.EBADF

    def _connect(self, address: Any, call: str) -> int:
        file = self._open()
        address = self.numeric(address, call)
        code = file.connect(address)
        self._kernel.note("connect", self._fd, address, code)
        return -code

    def shutdown(self, how: int) -> None:
        code = self._open().shutdown(how)
        self._kernel.note("shutdown", self._fd, how, code)
        checked(code)

    # Data.

    def _receive(self, call: str, size: int, flags: int) -> tuple[bytes, Any, int]:
        """Return what a call receives, its sender's address, and MSG_TRUNC if a message was longer."""
        file = self._open()
        if flags & socket.MSG_OOB:
            raise Unsimulated(f"socket.{call} was called with MSG_OOB")
        if not file.is_whole:
            peeks = flags & socket.MSG_PEEK
            data = self._result(call, file.peek(size) if peeks else self._kernel.recv(self._fd, size), flags)
            return data, file.name_of_sender(), 0
        assert isinstance(file, DatagramFile)
        received = self._kernel.receive_datagram(self._fd, file, bool(flags & socket.MSG_PEEK))
        message, address = self._result(call, received, flags)
        data = message[:size]
        if flags & socket.MSG_TRUNC:  # The result has the length of the whole message.
            data += bytes(len(message) - len(data))
        return data, address, int(socket.MSG_TRUNC) if len(message) > size else 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        # As Python does, make no call for no bytes.
        return self._receive("recv", size, flags)[0] if size else b""

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        return self.recvfrom_into(buffer, nbytes, flags)[0]

    def recvfrom(self, size: int, flags: int = 0) -> tuple[bytes, Any]:
        return self._receive("recvfrom", size, flags)[:2]

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        with memoryview(buffer) as view, view.cast("B") as room:
            data, address, _ = self._receive("recv_into", min(nbytes or len(room), len(room)), flags)
            part = data[: len(room)]
            room[: len(part)] = part
            return len(data), address

    def send(self, data: Any, flags: int = 0) -> int:
        self._open()
        send = self._kernel.send_more if flags & socket.MSG_MORE else self._kernel.send
        return int(self._result("send", send(self._fd, data, 0), flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        with memoryview(data) as view, view.cast("B") as rest:
            done = 0
            while done < len(rest):
                done += self.send(bytes(rest[done:]))

    def sendto(self, data: Any, *flags_and_address: Any) -> int:
        return self._send_to(data, flags_and_address[-1] if flags_and_address else None, "sendto")

    def _send_to(self, data: Any, address: Any, call: str) -> int:
        file = self._open()
        if not isinstance(file, DatagramFile):
            return self.send(data)
        with memoryview(data) as view:
            sent = self._kernel.send_datagram_to(self._fd, file, view.tobytes(), self.numeric(address, call))
        return int(self._result(call, sent))

    def sendmsg(self, buffers: Iterable[Any], ancdata: Any = (), flags: int = 0, address: Any = None) -> int:
        file = self._open()
        data = b"".join(memoryview(buffer).tobytes() for buffer in buffers)
        handed: list[int] = []
        for level, kind, content in ancdata:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                handed += array.array("i", bytes(memoryview(content)))
        if handed:
            found = map(self._kernel.table.files.get, handed)
            files = [each for each in found if each is not None]
            checked(file.hand(files) if len(files) == len(handed) else -errno.EBADF)
        try:
            return self._send_to(data, address, "sendmsg") if address is not None else self.send(data, flags)
        finally:
            if handed:
                file.hand([])

    def recvmsg(self, bufsize: int, ancbufsize: int = 0, flags: int = 0) -> Any:
        if flags & socket.MSG_ERRQUEUE:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data, address, seen = self._receive("recvmsg", bufsize, flags)
        fds = array.array("i")
        room = max(0, ancbufsize - socket.CMSG_LEN(0)) // fds.itemsize
        for file in self._file.take_carried():
            fd = self._kernel.table.add(file) if len(fds) < room else -errno.EMFILE
            unreferenced(file)
            if fd < 0:
                seen |= int(socket.MSG_CTRUNC)
            else:
                fds.append(fd)
        messages = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds.tobytes())] if fds else []
        return data, messages, seen, address

    def recvmsg_into(self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0) -> Any:
        (buffer,) = buffers
        with memoryview(buffer) as view, view.cast("B") as room:
            data, messages, seen, address = self.recvmsg(len(room), ancbufsize, flags)
            room[: len(data)] = data
            return len(data), messages, seen, address

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        raise BlockingSocket("socket.sendfile waits")

    # The end.

    def _real_close(self, _ss: Any = None) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if self._kernel.table.files.get(fd) is self._file:
                self._kernel.close(fd)

    def detach(self) -> int:
        self._closed = True
        fd, self._fd = self._fd, -1
        return fd

    def dup(self) -> SimSocket:
        fd = self._kernel.table.add(self._open())
        checked(fd)
        return SimSocket.of(self._kernel, self._file, fd, timeout=self._timeout)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._fd >= 0 and self._kernel.is_alive():
            self._kernel.host.lost_socket(self)
            self._real_close()

    def get_inheritable(self) -> bool:
        self._open()
        return self._fd in self._kernel.table.inherited

    def set_inheritable(self, inheritable: bool) -> None:
        self._open()
        inherited = self._kernel.table.inherited
        (inherited.add if inheritable else inherited.discard)(self._fd)

    def ioctl(self, control: Any, option: Any) -> None:
        raise Unsimulated("socket.ioctl")
