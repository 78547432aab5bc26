"""Writes that the kernel holds: the pieces that a callback writes leave in one packet.

Most servers write an answer in pieces, and to make a packet costs the kernel more than all else that a small
write does. So a connection learns how many pieces its callbacks write. It sends all but the last one with
MSG_MORE. The kernel takes these bytes and makes no packet; the last piece takes them along. If it stays away,
or if more come, the loop pushes what is held when the callback has ended.

    a piece, not the last -> send(MSG_MORE), and the stream is listed here
    the last piece        -> send() -> one packet
    the callback ends, or something else is about to act -> push_all() -> one packet for each stream

The kernel has the bytes, in order. So they leave if the process ends, becomes another program or never
pushes; then after 0.2 s or more. Everything that is sent by the same socket afterwards comes behind.

**Order between connections.** A peer must not see that one write has overtaken another. So before another
handle acts in the same callback, what is held is pushed.

A loop that collects writes (`whorl.server_loop`) lets every small write wait while other callbacks of the
batch wait to run, for at most a millisecond. To wake many sleeping peers at once costs less than to wake
one after another. Once more streams are held than callbacks wait, all are pushed, in the order of their
first writes. So the answers of a batch leave in shrinking halves, and the peers work while the rest of the
batch runs.
"""

from __future__ import annotations

from typing import Any

from whorl.core import limits
from whorl.core.handle import Handle
from whorl.core.kernel.kernel import Kernel

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

if not cython.compiled:
    from whorl.core.callback import thread_ident


class HeldWrites:
    """The streams of a loop whose last bytes the kernel holds until they are pushed."""

    def __init__(self, kernel: Kernel) -> None:
        self.collects: bool = False  # whether the program wants writes to wait for the other callbacks
        self.thread: int = 0  # the thread that runs a callback, or 0: nobody would push what was held outside
        self.run: int = 0  # the number of a run: what one stream writes in one callback before others do
        self.streams: list[Handle] = []  # in the order of their first writes
        self._kernel = kernel
        self._thread = 0  # the loop's thread, once it holds something
        self._behind = 0  # how many callbacks of the batch wait behind the running one, if the loop collects
        self._since = 0  # the time of the first held write, in ticks

    def may_wait(self) -> bool:
        """Return whether a write may wait for other callbacks of the batch."""
        return self.collects and self._behind > 0

    def add(self, stream: Any) -> None:
        """List a stream that is about to let the kernel hold a write, in the loop's thread."""
        if not self.streams:
            self._thread = thread_ident()
            if self.collects:
                self._since = self._kernel.ticks()
        elif self.streams[len(self.streams) - 1] is stream:
            return  # Its last piece has left, and more come.
        self.streams.append(stream)

    def act(self, stream: Any) -> None:
        """Push what others hold, before this stream sends."""
        if len(self.streams) > 1 or self.streams[0] is not stream:
            self.push_all()

    def callback_begins(self, behind: int) -> None:
        """Note, in a loop that collects, that so many callbacks of the batch wait behind the next one."""
        self._behind = behind

    def callback_ended(self) -> None:
        """Push what is held, unless the loop collects and enough callbacks wait that may write soon."""
        if self.collects and len(self.streams) <= self._behind and self._is_recent():
            return
        for stream in self.streams:
            stream._learn_pieces()
        self.push_all()

    def batch_ended(self) -> None:
        """Push what is held: no callback goes on that could write more."""
        self.thread = self._behind = 0
        if self.streams:
            self.callback_ended()

    def _is_recent(self) -> bool:
        return 0 <= self._kernel.ticks() - self._since <= limits.LONGEST_HELD_TICKS

    def push_all(self) -> None:
        """Push what is held, in the order of the first writes. In another thread, do nothing.

        If this is interrupted, the rest is still listed; a stream that is pushed twice does nothing.
        """
        if not self.streams or self._thread != thread_ident():
            return
        for stream in self.streams:
            stream._push()
        self.streams.clear()
