"""A loop inside another main loop: its descriptor in the other's epoll, its deadline in the other's timeout.

The outer loop here is a few lines around `select.epoll`; a GUI's or a game's is used in the same way.
"""

from __future__ import annotations

import select
import socket

from whorl import Loop, RunMode
from whorl.core import Event
from whorl.handles import Poll, Prepare, Timer

MILLISECOND = 1_000_000


def make_inner() -> Loop:
    """Return a loop with a timer, and a socket that is read."""
    loop = Loop()
    ours, theirs = socket.socketpair()

    def tick(timer: Timer) -> None:
        theirs.send(b"tick")

    def readable(poll: Poll, events: Event, error: OSError | None) -> None:
        print("inner loop: read", ours.recv(100))
        timer.close()
        poll.close(lambda poll: (ours.close(), theirs.close()))

    timer = Timer(loop)
    timer.start(tick, timeout_ns=20 * MILLISECOND)
    Poll(loop, ours).start(Event.READABLE, readable)
    turns = Prepare(loop)
    turns.start(lambda prepare: print("inner loop: a turn"))
    turns.unref()
    turns.data = "closed last"
    return loop


def run_outer(inner: Loop) -> None:
    """Sleep until something is due for either loop; give the inner one a turn when it is its turn."""
    with select.epoll() as outer:
        outer.register(inner.backend_fd(), select.EPOLLIN)
        while inner.alive():
            inner.update_time()
            timeout_ns = inner.backend_timeout()
            events = outer.poll(None if timeout_ns < 0 else timeout_ns / 1e9)
            print("outer loop:", "events" if events else "a deadline", "of the inner loop")
            inner.run(RunMode.NOWAIT)


def main() -> None:
    """Run the one inside the other, and close it."""
    inner = make_inner()
    run_outer(inner)
    for handle in inner.walk():
        handle.close()
    inner.run()
    inner.close()


if __name__ == "__main__":
    main()
