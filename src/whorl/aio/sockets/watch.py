"""The watch of a user's descriptor: its callbacks, and the tasks in the `sock_` methods.

A callback (`add_reader`) is called whenever the descriptor is ready, so it is watched level-triggered. A task
waits once: for an attempt that does not block.

The socket of such tasks stays watched edge-triggered between them, as long as it lives. An attempt that could
only block is not made: the last receive took all data, and no event came since. TCP shows that by a receive
of less than its limit, other sockets by an attempt that finds nothing.

Such a watch is *idle* while no callback is set and no task waits: any other user of the descriptor takes it
over. The watch of a socket object whose reader was removed is idle too, until the first event. Programs that
remove a reader mostly add one again.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.aio.interop.reusable_future import ReusableFuture
from whorl.aio.sockets import states
from whorl.aio.sockets.connect_attempt import ConnectAttempt
from whorl.aio.sockets.interest import interest
from whorl.aio.transports.pipe import ReadPipe, WritePipe
from whorl.core import limits
from whorl.core import states as events
from whorl.core.callback import Callback, drop_callback
from whorl.core.kernel.errors import os_error
from whorl.core.kernel.socket_overrides import PLAIN, SOCKET
from whorl.core.kernel.sockets import is_tcp
from whorl.core.pollers.contract import IOHandle

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if TYPE_CHECKING:
    from whorl.aio.loop_type import AnyLoop, FdTable
    from whorl.core.loop.loop import Loop

if not cython.compiled:
    from whorl.aio.interop.class_snapshot import version_of
    from whorl.core.callback import has_single_reference

    takes_no_arguments = callable

    def is_possible(fd: int) -> bool:
        """Return whether there may be a descriptor of this number."""
        return 0 <= fd < 1 << 31

    def is_plain(sock: Any) -> bool:
        """Return whether this is a socket of Python's class, as it always was."""
        return type(sock) is SOCKET and has_plain_methods()

    def plain_fileno(sock: Any) -> int:
        """Return the result of a plain socket's `fileno`."""
        fd: int = sock.fileno()
        return fd


WAIT = 0
OVER = 1
AGAIN = 2
DRAINED = 1  # all data was received, and no event came since
HUNG_UP = 2  # the peer will write no more, so that no event may come
URGENT = 4  # there is urgent data, at which a receive ends before it has all
Socket = SOCKET
FILENO = SOCKET.fileno
_version_of_sockets = 0  # of Python's class when it was last found to be as ever


def facts_of(seen: int) -> int:
    """Return the facts on unread data that these events tell."""
    facts = 0
    if seen & events.ENDS:
        facts = HUNG_UP
    if seen & events.PRIORITIZED:
        facts |= URGENT
    return facts


def has_plain_methods() -> bool:
    """Return whether Python's class of sockets has its original methods."""
    global _version_of_sockets
    is_as_ever = SOCKET.recv is PLAIN["recv"] and SOCKET.send is PLAIN["send"] and SOCKET.fileno is FILENO
    if not is_as_ever or not takes_no_arguments(FILENO):
        return False
    _version_of_sockets = version_of(SOCKET)
    return True


def kind_of(sock: socket.socket) -> int:
    """Return the `Kind` of a socket object."""
    if is_tcp(sock):
        return states.TCP
    is_local = sock.family == socket.AF_UNIX and sock.type == socket.SOCK_STREAM
    return states.LOCAL_STREAM if is_local else states.OTHER


class SocketWait(ReusableFuture):
    """A reusable future that a task awaits until an attempt does not block; then it holds the result.

    The waiting task is stepped in the turn of the event, not in the next one. `attempt` returns the result, a
    negative error number, or None if it did a part and is to be made again. Without an attempt, at most
    `size` bytes are received.
    """

    def __init__(
        self, loop: AnyLoop, watched: DescriptorWatch, attempt: Callable[[], Any] | None, size: int
    ) -> None:
        ReusableFuture.__init__(self, loop)
        self._watched: DescriptorWatch | None = watched
        self._attempt = attempt
        self._size = size
        self._result: Any = None

    def take(self) -> Any:
        """Return the result of the attempt, and drop it here."""
        result, self._result = self._result, None
        return result

    def withdraw(self) -> None:
        """Leave the descriptor: no task awaits the result any more."""
        watched = self._watched
        self._watched = None
        if watched is not None:
            watched.forget(self)

    # The method that the watch calls.

    def _try(self, fd: int) -> int:
        """Make the attempt; return OVER, WAIT if it would block, or AGAIN if it did a part and may go on."""
        result: Any = None
        try:
            for _ in range(limits.ATTEMPTS_PER_EVENT):
                if self._attempt is None:
                    result = received(self._event_loop, self._watched, fd, self._size)
                else:
                    result = self._attempt()
                if result is not None and not (type(result) is int and result == -errno.EINTR):
                    break
            else:
                return AGAIN
            if type(result) is int and result < 0:
                if result == -errno.EAGAIN:
                    return WAIT
                raise os_error(result)
            self._result = result
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._error = error
        self._done = True
        self._watched = None
        self._attempt = None
        return OVER


class DescriptorWatch(IOHandle):
    """The watch of a descriptor: the callbacks or tasks for readable, and those for writable.

    With a socket object the descriptor may stay watched while no task waits.
    """

    is_descriptor_watch = True  # for code that must not import this module to know one

    def __init__(self, loop: AnyLoop, fd: int, sock: Any = None) -> None:
        super().__init__(loop)
        loop._mark_internal(self)
        self._event_loop = loop
        self._fd = fd
        self.fileobj: Any = None  # the object that the callbacks were registered with, which they keep alive
        self.reader: Callback | None = None
        self.writer: Callback | None = None
        self.receiver: SocketWait | None = None
        self.sender: SocketWait | None = None
        self._owner: Any = None  # a weak reference to the socket object
        self._kind = states.SHARED
        self._unread = 0  # the known facts on unread data: DRAINED, HUNG_UP, URGENT
        self._last_size = 0  # the number of bytes that the last receive brought
        self._idle_events = 0  # the number of events while no task waited
        self._last_wait: SocketWait | None = None  # the wait that was used last
        self._previous_wait: SocketWait | None = None  # the wait that was used before the last
        self._note_owner(sock)

    def _note_owner(self, sock: Any) -> None:
        """Note the socket object whose descriptor is watched, if it is one."""
        if self._event_loop._poller.can_keep_idle_watches and isinstance(sock, Socket):
            self._owner = weakref.ref(sock)
            self._kind = kind_of(sock)

    def _on_events(self, seen: int) -> None:
        if self._is_idle_watch:
            self._count_idle_event(seen)
            return
        # Errors and hang-ups concern both directions, as the selectors module has it.
        writer, sender = self.writer, self.sender
        self._unread |= facts_of(seen)
        if seen == 0 or seen & ~events.WRITABLE:
            self._unread &= ~DRAINED
            try:
                self._on_readable(seen)
            except BaseException:
                if sender is not None:  # The event may not come again.
                    self.attempt_soon()
                elif writer is not None and not writer._cancelled and seen & events.OUTGOING:
                    self._event_loop._enqueue(writer)  # It was collected, and runs like all such events.
                raise
        if seen == 0 or seen & events.OUTGOING:
            # A writer that the reader has just removed was cancelled, and does not run.
            if writer is not None and seen:
                if not writer._cancelled:
                    self._call(writer)
                elif writer is self.writer:
                    self.set_writer(None)
            elif sender is not None and sender is self.sender:
                self._make_attempt(sender)

    def _on_readable(self, seen: int) -> None:
        reader = self.reader
        if self.receiver is not None:
            self._make_attempt(self.receiver)
        elif reader is not None and seen:
            if reader._cancelled:
                self.set_reader(None)
            else:
                self._call(reader)

    def _call(self, callback: Callback) -> None:
        """Run one of the two callbacks; an error of the one does not cost the other its call."""
        try:
            if self._event_loop._debug or self._event_loop._run_hook is not None:
                self._event_loop._run_instrumented(callback)
            else:
                callback._execute()
        except BaseException as error:
            self._event_loop._callback_failed(callback, error)

    def _make_attempt(self, wait: SocketWait) -> None:
        """Make the attempt that a task waits for."""
        if not wait._is_wanted():  # The task was cancelled, and has not seen it yet.
            self.forget(wait)
            return
        outcome = wait._try(self._fd)
        if outcome == OVER:
            if wait is self.receiver:
                self.receiver = None
                result = wait._result
                if type(result) is bytes:
                    self.update_drained(len(result), wait._size)
                elif type(result) is int:
                    self.update_drained(result, wait._size)
            else:
                self.sender = None
            self._watch(False)
            if not wait._is_stepped_now():
                self._wake_now(wait)
        elif outcome == AGAIN:
            self.attempt_soon()
        elif wait is self.receiver:
            self._unread = (self._unread | DRAINED if self._edge else self._unread & ~DRAINED) & ~URGENT

    def _wake_now(self, wait: SocketWait) -> None:
        """Call the waiting task at once: if it were cancelled before its turn, the result would be lost."""
        call = wait._first_call()
        if call is not None:
            self._call(call)

    def attempt_soon(self) -> None:
        """Make the attempts again in the next turn, without an event of the kernel."""
        if not self._queued:
            self._loop._queue_pending(self)  # This may find no memory.
            self._queued = True

    def _count_idle_event(self, seen: int) -> None:
        """Count an event that came while no task waits.

        After IDLE_EVENTS of them, the watch ends: events without a wait are no longer worth their cost. A
        level-triggered watch ends at once, because its event would come again and again.
        """
        self._unread |= facts_of(seen)
        if seen & ~events.WRITABLE:
            self._unread &= ~DRAINED
            self._idle_events += 1
            if self._idle_events > limits.IDLE_EVENTS or not self._edge:
                self._is_idle_watch = False
                self._event_loop._poller.remove(self)

    def update_drained(self, size: int, limit: int) -> None:
        """Record whether the last receive took all data: by TCP it did if it got less than `limit`."""
        self._last_size = size
        if self._edge and self._kind == states.TCP and not self._unread & (HUNG_UP | URGENT):
            self._unread = DRAINED if 0 < size < min(limit, limits.READ_SIZE) else 0

    def belongs_to(self, sock: Any) -> bool:
        """Return whether the watch was made for this socket object."""
        return self._owner is not None and self._owner() is sock

    def is_stale(self) -> bool:
        """Return whether the watch's socket is gone, and its number may mean another file."""
        if self._owner is None or self.reader is not None or self.writer is not None:
            return False
        sock = self._owner()
        return sock is None or sock.fileno() != self._fd

    # Waits and callbacks.

    def _new_wait(self, size: int) -> SocketWait:
        """Return a wait to receive: a used one, if it has no other reference.

        It is the wait before the last: the last one may just be serving the caller.
        """
        wait = self._previous_wait
        self._previous_wait = self._last_wait
        if wait is not None and has_single_reference(wait):
            wait._reset()
            wait._watched = self
            wait._size = size
        else:
            wait = SocketWait(self._event_loop, self, None, size)
        self._last_wait = wait
        return wait

    def _watch(self, replaced: bool) -> None:
        """Let the poller watch for the events that callbacks or tasks wait for.

        A replacement may be for another file with the same number. The kernel does not watch that file yet,
        so the poller registers the descriptor again.
        """
        waiting = (
            (states.READER if self.reader is not None else 0)
            | (states.WRITER if self.writer is not None else 0)
            | (states.RECEIVER if self.receiver is not None else 0)
            | (states.SENDER if self.sender is not None else 0)
        )
        former = self._interest | (states.EDGE if self._edge else 0)
        plan = interest(self._kind, waiting, former, self._event_loop._poller.edge_triggered)
        if plan == events.READABLE | states.IDLE:
            self._seen = 0  # The recorded events were for the former reader.
        wanted = plan & ~(states.EDGE | states.IDLE)
        if wanted != self._interest or replaced or (wanted and plan & states.EDGE != former & states.EDGE):
            self._rewatch(wanted, plan & states.EDGE != 0)
        self._is_idle_watch = plan & states.IDLE != 0
        if not waiting & (states.READER | states.WRITER):
            self.fileobj = None
        if waiting:
            self._idle_events = 0
            self._activate()
        else:
            self._deactivate()

    def _rewatch(self, wanted: int, edge: bool) -> None:
        """Have the poller watch in another way."""
        self._unread = 0
        former = self._edge
        self._edge = edge
        try:
            if wanted:
                self._event_loop._poller.modify(self, wanted)
            else:
                self._event_loop._poller.remove_later(self)
        except BaseException:
            self._edge = former
            raise

    def set_reader(self, callback: Callback | None) -> bool:
        """Call this when readable from now on; return whether a callback or a task was waiting.

        A task that did waits in vain, as in asyncio.
        """
        former, waited = self.reader, self.receiver
        self.reader = callback
        self.receiver = None
        try:
            self._watch(callback is not None and (former is not None or waited is not None))
        except BaseException:
            self.reader = former
            self.receiver = waited
            raise
        if callback is not None and self._seen:
            self._keep_other_direction(events.WRITABLE)
        if former is not None:
            drop_callback(former)
        return former is not None or waited is not None

    def set_writer(self, callback: Callback | None) -> bool:
        """Call this when writable from now on; return whether a callback or a task was waiting."""
        former, waited = self.writer, self.sender
        self.writer = callback
        self.sender = None
        try:
            self._watch(callback is not None and (former is not None or waited is not None))
        except BaseException:
            self.writer = former
            self.sender = waited
            raise
        if callback is not None and self._seen:
            self._keep_other_direction(events.READABLE | events.DISCONNECT | events.PRIORITIZED)
        if former is not None:
            drop_callback(former)
        return former is not None or waited is not None

    def _keep_other_direction(self, others: int) -> None:
        """Drop the events of one direction that were seen before its callback was set.

        The callback's direction is watched level-triggered, so these events are seen again in the next turn.
        """
        self._seen = others if self._seen & (events.HANGUP | events.ERROR) else self._seen & others

    def set_receiver(self, wait: SocketWait) -> None:
        """Make the wait's attempt when readable."""
        if self.reader is not None:
            self.set_reader(None)
        former = self.receiver
        self.receiver = wait
        try:
            self._watch(former is not None)
        except BaseException:
            self.receiver = former
            raise

    def set_sender(self, wait: SocketWait) -> None:
        """Make the wait's attempt when writable."""
        if self.writer is not None:
            self.set_writer(None)
        former = self.sender
        self.sender = wait
        try:
            self._watch(former is not None)
        except BaseException:
            self.sender = former
            raise

    def forget(self, wait: SocketWait) -> None:
        """Remove a wait that ended before its attempt succeeded."""
        if wait is self.receiver:
            self.receiver = None
        elif wait is self.sender:
            self.sender = None
        else:
            return
        if not self._event_loop._closed:
            self._watch(False)

    def detach_all(self) -> None:
        """Forget all callbacks and waits, and leave the descriptor to a transport."""
        for callback in (self.reader, self.writer):
            if callback is not None:
                callback.cancel()
        self.reader = self.writer = self.receiver = self.sender = None
        self._watch(False)


#: The classes of handles that allow other users of their descriptor.
SHARE = (ConnectAttempt, DescriptorWatch, ReadPipe, WritePipe)


def descriptor_of(fileobj: Any) -> int:
    """Return the descriptor of an int or of an object with `fileno()`.

    Raises ValueError if there is none, OverflowError for a number beyond all descriptors.
    """
    fd = number_of(fileobj)
    if fd > 0 and not is_possible(fd):
        raise OverflowError("Python int too large to convert to C int")
    if fd < 0:
        raise ValueError(f"Invalid file descriptor: {fd}")
    return fd


def number_of(fileobj: Any) -> int:
    """Return the descriptor of an int or `fileno()`, -1 for a closed socket; ValueError for anything else."""
    if isinstance(fileobj, int):
        return fileobj
    try:
        return int(fileobj.fileno())
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"Invalid file object: {fileobj!r}") from None


@cython.binding(True)  # type: ignore[untyped-decorator]
def ensure_no_transport(loop: AnyLoop, fileobj: Any) -> None:
    """Raise RuntimeError if a transport or another handle of the loop's uses the descriptor."""
    fd = number_of(fileobj)
    if is_possible(fd):
        refuse_transport(loop, fileobj, fd, loop._poller.find(fd))


def refuse_transport(loop: AnyLoop, fileobj: Any, fd: int, handle: IOHandle | None) -> None:
    """Do the same; `handle` is the one that the poller watches the descriptor for."""
    if handle is None:
        table: FdTable = loop._transports
        handle = table.get(fd)  # A handle that is not watched at the moment.
    if handle is not None and not isinstance(handle, SHARE) and not handle.is_closing():
        if isinstance(fileobj, asyncio.BaseTransport):  # Whorl's transport has `fileno`, asyncio's has not.
            raise ValueError(f"Invalid file object: {fileobj!r}")
        raise RuntimeError(f"File descriptor {fileobj!r} is used by transport {handle!r}")


def release_fd_for_transport(loop: AnyLoop, sock: Any) -> None:
    """Detach all waits from a descriptor that a transport takes: they wait in vain, as in asyncio."""
    ensure_no_transport(loop, sock)
    found = loop._poller.find(descriptor_of(sock))
    if isinstance(found, DescriptorWatch) and not found._is_idle_watch:
        watch: DescriptorWatch = found
        watch.detach_all()
    elif isinstance(found, ConnectAttempt) and not found._is_idle_watch:
        loop._poller.remove(found)


def new_watch(loop: AnyLoop, fd: int, sock: Any = None) -> DescriptorWatch:
    """Return a new watch of a descriptor that had none."""
    other = loop._poller.find(fd)
    if isinstance(other, (ConnectAttempt, ReadPipe, WritePipe)) and not other._is_idle_watch:
        other._release_fd()
    watch = taken_spare(loop)
    if watch is None:
        return DescriptorWatch(loop, fd, sock)
    watch._fd = fd
    watch._note_owner(sock)
    return watch


def keep_spare(loop: AnyLoop, watch: DescriptorWatch) -> None:
    """Keep a watch that has ended, to use it again; but not one on which a task has waited."""
    if not watch._interest and watch._last_wait is None and watch._kind == states.SHARED:
        loop._spare_watch = watch


def taken_spare(loop: AnyLoop) -> DescriptorWatch | None:
    """Return the spare watch, if no other code refers to it, and no probe is to be told of a new one."""
    watch: DescriptorWatch | None = loop._spare_watch
    loop._spare_watch = None
    if watch is None or loop._probe is not None or watch._queued or not has_single_reference(watch):
        return None
    return watch


def watch_for(loop: AnyLoop, sock: Any) -> DescriptorWatch:
    """Return the watch of a socket on which a task is going to wait."""
    loop._check_closed()
    fd = descriptor_of(sock)
    found = loop._poller.find(fd)
    if not isinstance(found, DescriptorWatch):
        ensure_no_transport(loop, fd)
        return new_watch(loop, fd, sock)
    watch: DescriptorWatch = found
    if watch.belongs_to(sock):
        return watch
    if watch.is_stale():
        loop._poller.remove(watch)
        return new_watch(loop, fd, sock)
    watch._owner = None  # Several objects share the descriptor, so no check finds out when it is closed.
    watch._kind = states.SHARED
    watch._watch(False)
    return watch


def received(loop: Loop, watch: DescriptorWatch | None, fd: int, limit: int) -> bytes | int:
    """Return at most `limit` bytes, or `-errno`."""
    if watch is None or watch._last_size >= limits.LONG_READ:
        return loop._kernel.recv(fd, limit)
    return loop._kernel.recv_short(fd, limit)


def receive(loop: AnyLoop, sock: Any, limit: int) -> bytes | SocketWait:
    """Return at most `limit` bytes of a socket, or a wait that gives them."""
    if limit < 0:
        raise ValueError("negative buffersize in recv")
    fd = plain_fileno(sock) if is_plain(sock) else sock.fileno()
    found = loop._poller.find(fd)
    watch: DescriptorWatch | None = found if isinstance(found, DescriptorWatch) else None
    if watch is not None and not watch.belongs_to(sock):
        watch = None
    if not limit or watch is None or not watch._unread & DRAINED:
        data = received(loop, watch, fd, limit) if limit else b""
        if isinstance(data, bytes):
            if watch is not None and watch._is_idle_watch:
                watch.update_drained(len(data), limit)
            return data
        if data not in (-errno.EAGAIN, -errno.EINTR):
            raise os_error(data)
    else:
        data = -errno.EAGAIN
    if watch is None:
        watch = watch_for(loop, sock)
    wait = watch._new_wait(limit)
    watch.set_receiver(wait)
    if data == -errno.EINTR:
        watch.attempt_soon()
    return wait


def receive_usually(loop: AnyLoop, sock: Any, limit: Any) -> bytes | SocketWait | None:
    """Do the same for a plain socket and a usual limit; return None if `receive` has to decide."""
    if loop._debug or not is_plain(sock) or type(limit) is not int or not 0 < limit <= limits.READ_SIZE:
        return None
    return receive(loop, sock, limit)


def send_usually(loop: AnyLoop, sock: Any, data: Any) -> int | bool | None:
    """Send bytes by such a socket; return True if it took them all, else their number, or `-errno`.

    Returns None if nothing was tried.
    """
    if loop._debug or not is_plain(sock) or type(data) is not bytes:
        return None
    machine: Loop = loop
    if machine._held.streams:
        machine._held.push_all()
    sent = loop._kernel.send(plain_fileno(sock), data, 0)
    return True if sent == len(data) else sent
