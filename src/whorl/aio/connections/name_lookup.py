"""Look-ups of names in threads that are not Python's, and so never wait for the GIL.

A thread of Python's needs the GIL to take a question, and again to hand the answer over. For most names that
costs more than the look-up. Uncompiled there are no such threads, and the loop's executor looks names up.
"""

from __future__ import annotations

import os
import socket
from sys import audit
from threading import get_ident
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.stock import has_stock_executor_methods, has_stock_run_in_executor
from whorl.aio.sockets.connect_plain import is_stock_loop
from whorl.core import states
from whorl.core.kernel.errors import os_error
from whorl.core.pollers.contract import IOHandle

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop

#: As many as a loop's executor has.
MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)
SHARED = "names"
LONGEST_LABEL = 63
FAMILIES = {int(family): family for family in socket.AddressFamily}
KINDS = {int(kind): kind for kind in socket.SocketKind}
gaierror = socket.gaierror

if not cython.compiled:

    def open_lookups(lookups: NameLookups, fd: int) -> bool:
        return False

    def close_lookups(lookups: NameLookups) -> None:
        pass

    def begin_lookup(
        lookups: NameLookups, host: Any, port: Any, family: int, kind: int, protocol: int, flags: int
    ) -> bool:
        return False

    def withdraw_lookup(lookups: NameLookups, number: int) -> None:
        pass

    def finish_lookups(lookups: NameLookups) -> None:
        pass


class NameLookups(IOHandle):
    """The look-ups of one loop. The threads hand their answers over and write to its counter."""

    def __init__(self, loop: AnyLoop) -> None:
        IOHandle.__init__(self, loop)
        loop._mark_internal(self)
        self._machine = loop
        # By the number of the look-up: the future that waits, the host, and when that was.
        self._waiting: dict[int, tuple[Any, bytes | None, int]] = {}
        self._last_number = 0
        self._edge = True  # Each write is an edge, so the counter is never read.
        self._open()

    def _open(self) -> None:
        machine = self._machine
        fd = machine._kernel.eventfd()
        if fd < 0:
            raise os_error(fd)
        if not open_lookups(self, fd):
            machine._kernel.close(fd)
            raise MemoryError
        self._fd = fd
        try:
            machine._poller.add(self, states.READABLE)
        except BaseException:
            self._release()
            raise
        machine._shared[SHARED] = self

    def renew(self) -> None:
        """Work in a forked child. The look-ups of the parent do not end here."""
        self._release()
        self._open()

    def begin(
        self,
        future: Any,
        host: bytes | None,
        port: bytes | None,
        family: int,
        kind: int,
        protocol: int,
        flags: int,
    ) -> int:
        """Look a name up; `future` gets the answer. Return its number, or 0 if there is no thread for it."""
        number = self._last_number = self._last_number + 1
        self._waiting[number] = (future, host, self._machine._kernel.now())
        if begin_lookup(self, host, port, family, kind, protocol, flags):
            self._machine._poller.skips.expect_events()
            self._machine._figures.count_jobs(1, 1, 0)
            return number
        del self._waiting[number]
        return 0

    def under_way(self) -> list[tuple[Any, bytes | None, int]]:
        """Return the future, the host and the beginning of each look-up that somebody waits for."""
        return list(self._waiting.values())

    def give_up(self, number: int) -> None:
        """Forget a future that does not wait any more, and its look-up if no thread has begun it."""
        if self._waiting.pop(number, None) is not None:
            self._machine._figures.count_jobs(0, 0, 1)
            withdraw_lookup(self, number)

    def _on_events(self, seen: int) -> None:
        before = len(self._waiting)
        try:
            finish_lookups(self)
        finally:
            self._machine._figures.count_jobs(0, 0, before - len(self._waiting))

    def _release(self) -> None:
        self._machine._poller.remove(self)
        self._fd = -1
        close_lookups(self)  # It closes the descriptor, or a thread does that is about to write.

    def end(self) -> None:
        """Forget all look-ups: the loop is closed."""
        self._release()
        self._machine._figures.count_jobs(0, 0, len(self._waiting))
        self._waiting.clear()

    def __del__(self) -> None:
        close_lookups(self)  # The loop was never closed.


def lookups_of(loop: AnyLoop) -> NameLookups | None:
    """Return the look-ups of a loop; None if a program could tell that its executor was not asked."""
    if not cython.compiled or loop._closed or not is_stock_loop(loop) or not loop._poller.edge_triggered:
        return None
    if loop._executor_shutdown_called or loop._default_executor is not loop._own_executor:
        return None
    if not loop._host.has_stock_getaddrinfo() or loop._thread_id != get_ident():
        return None
    if not has_stock_executor_methods() or not has_stock_run_in_executor(loop):
        return None
    found: NameLookups | None = loop._shared.get(SHARED)
    if found is None:
        try:
            found = NameLookups(loop)
        except OSError:  # The process has no descriptor left.
            found = None
    return found


def look_up(
    loop: AnyLoop, host: Any, port: Any, family: Any, kind: Any, protocol: Any, flags: Any
) -> tuple[NameLookups, Any, int] | None:
    """Begin to look a name up; return the look-ups of the loop, the answer's future, and its number.

    Return None if the executor has to be asked. It also reports what is wrong with a question.
    """
    lookups = lookups_of(loop)
    if lookups is None:
        return None
    if not (is_small(family) and is_small(kind) and is_small(protocol) and is_small(flags)):
        return None
    host_bytes = encoded_host(host)
    port_bytes = encoded_port(port)
    if host_bytes is False or port_bytes is False:
        return None
    audit("socket.getaddrinfo", host, port, family, kind, protocol)
    future = loop.create_future()
    number = lookups.begin(future, host_bytes, port_bytes, family, kind, protocol, flags)
    return (lookups, future, number) if number else None


def encoded_host(host: Any) -> Any:
    """Return a host as the C library takes it; False if only Python's own function does it or refuses it."""
    if host is None:
        return None
    if type(host) is bytes:
        return False if b"\0" in host else host
    if type(host) is not str or not host.isascii() or "\0" in host:
        return False
    if len(host) > LONGEST_LABEL or ".." in host or host[:1] == ".":  # Python's codec knows the rules.
        encoded: Any = False
        try:
            encoded = host.encode("idna")
        except UnicodeError:
            pass
        return encoded
    return host.encode()


def encoded_port(port: Any) -> Any:
    """Return a port or a service in the same way."""
    if type(port) is int:
        return b"%d" % port if 0 <= port <= 65535 else False
    if type(port) is str and port.isascii():
        port = port.encode()
    if port is None or (type(port) is bytes and b"\0" not in port):
        return port
    return False


def is_small(number: Any) -> bool:
    """Return whether it is a number that C takes."""
    return isinstance(number, int) and -(1 << 31) <= number < 1 << 31
