"""A socket that is being connected: one wait for the poller.

The watch is edge-triggered, and stays as an idle one when the socket is connected. A transport, which follows
in the next turn, takes it over by one call of the kernel.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whorl.aio.streams.feed import StreamWait
from whorl.core import states
from whorl.core.kernel.errors import os_error
from whorl.core.pollers.contract import IOHandle

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.core.loop.loop import Loop

AF_INET6 = int(socket.AF_INET6)
NO_KIND: tuple[int, int, None] = (0, 0, None)
DONE: Iterator[None] = iter(())
next(DONE, None)  # It has ended by now, so no thread that asks it changes it.

if not cython.compiled:
    from whorl.aio.streams.feed import new_wait

    def owns_fd(attempt: Any) -> bool:
        """Return whether the attempt has to close its descriptor."""
        return getattr(attempt, "_owns_fd", False)


class ConnectAttempt(IOHandle):
    """A socket that is being connected. One task awaits it, and then calls `check`."""

    def _set_up(self, loop: Any) -> None:
        IOHandle._set_up(self, loop)
        self._machine: Loop = loop
        self._socket_fd = -1
        self._kind = NO_KIND
        self._owns_fd = False  # whether the loop has made the socket, and nobody closes it but this
        self._early = 0  # the events that came before there was a transport
        self._peer: Any = None  # the peer's name, if it is known
        self._code = 0  # the error number of the connect
        self._wait: StreamWait | None = None

    def _init_begun(self, machine: Loop, fd: int, kind: tuple[int, int, None]) -> None:
        """Work on a socket whose connect was begun, in place of `__init__`.

        `kind` holds the family and the protocol number.
        """
        self._set_up(machine)
        self._fd = self._socket_fd = fd
        self._kind = kind
        machine._internal_handle_opened(self)

    def _watch(self) -> None:
        """Let the poller tell when the connect ends."""
        self._wait = new_wait(self._machine)
        self._edge = self._machine._poller.edge_triggered
        self._machine._poller.add(self, states.WATCHABLE if self._owns_fd and self._edge else states.WRITABLE)
        self._activate()

    def _on_events(self, seen: int) -> None:
        self._early |= seen
        if not self._active:  # It is connected, and no other handle has taken the watch over.
            if not self._owns_fd:
                self._leave()
            return
        if not seen & states.OUTGOING:
            return
        self._deactivate()
        self._code = self._machine._kernel.descriptor_error(self._fd)
        if self._edge and not self._code and self._fd == self._socket_fd:
            self._is_idle_watch = True
        else:
            self._leave()
        wait: StreamWait | None = self._wait
        if wait is not None:
            wait._wake()

    def _leave(self) -> None:
        """Leave the poller."""
        self._machine._poller.remove(self)
        if self._fd != self._socket_fd:
            self._machine._kernel.close(self._fd)
            self._fd = self._socket_fd

    def _release_fd(self) -> None:
        """Release the descriptor to another handle of the loop, and watch a duplicate."""
        kernel = self._machine._kernel
        duplicate = kernel.duplicate(self._socket_fd)
        if duplicate < 0:
            raise os_error(duplicate)
        self._leave()
        self._fd = duplicate
        self._machine._poller.add(self, states.WRITABLE)

    def __del__(self) -> None:
        if owns_fd(self):  # The task that awaited it is gone.
            self._machine._kernel.close(self._socket_fd)

    # For the task.

    def __await__(self) -> Any:
        """Wait until the connect has ended."""
        return self._wait if self._active else DONE

    def check(self, address: tuple[Any, ...]) -> None:
        """Raise the error of the connect, if there is one, with the address in its text."""
        if self._code:
            if self._kind[0] == AF_INET6:
                address = (*address, 0, 0)[:4]
            raise OSError(self._code, f"Connect call failed {address}")

    def give_up(self) -> None:
        """Leave the poller, and close the loop's own socket."""
        self._deactivate()
        self._leave()
        if self._owns_fd:
            self._owns_fd = False
            self._machine._kernel.close(self._socket_fd)

    def reuse_wait(self) -> StreamWait:
        """Return a wait for the next thing to wait for."""
        wait = self._wait
        if wait is None:
            return new_wait(self._machine)
        wait._reset()
        return wait

    def to_socket(self) -> Any:
        """Return a socket object for the connection of the loop's own socket."""
        self._leave()
        family, protocol, _ = self._kind
        sock = self._machine._kernel.socket_of(self._socket_fd, family, protocol)
        self._owns_fd = False
        return sock
