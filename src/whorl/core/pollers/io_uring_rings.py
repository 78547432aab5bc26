"""io_uring as a poller uses it: descriptors to watch go in, the seen events of each come out, once.

Two queues lie in memory that the kernel shares with us. One call hands requests over and sleeps for the
answers; an answer that is there already costs no call. The layouts are the kernel's and the same everywhere,
so neither liburing nor a new header is needed. Compiled only: uncompiled, `open` returns ENOSYS.
"""

from __future__ import annotations

import errno

try:
    import cython
except ImportError:
    from whorl.core import cython_shim as cython

#: The errors that stay for the life of this process: no loop tries again.
_LASTING = (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.EOPNOTSUPP)

_refusals: list[int] = []

if not cython.compiled:

    def set_up(ring: Ring) -> int:
        return -errno.ENOSYS

    def tear_down(ring: Ring) -> None:
        pass

    def is_open(ring: Ring) -> bool:
        return False

    is_shared = is_open
    has_answer = is_open
    has_work = is_open

    def put_watch(ring: Ring, fd: int, mask: int, generation: int) -> int:
        return -errno.EBADF

    def put_end(ring: Ring, fd: int, generation: int) -> int:
        return -errno.EBADF

    def enter(ring: Ring) -> int:
        return -errno.EBADF

    def sleep(ring: Ring, timeout_ns: int, blocked_signal: int) -> int:
        return -errno.EBADF

    def answered_fd(ring: Ring) -> int:
        return -1

    answered_result = answered_fd
    ring_fd = answered_fd

    def answered_generation(ring: Ring) -> int:
        return 0

    def advance(ring: Ring) -> None:
        pass

    def know_file(ring: Ring, fd: int) -> int:
        return -errno.EBADF

    def knows_file(ring: Ring, fd: int) -> bool:
        return False


class Ring:
    """An io_uring. A method returns its result or the negative error number; EBADF if it is not open."""

    __slots__ = ()

    def open(self) -> int:
        """Set the queues up, and watch a counter to see that they work."""
        if _refusals:
            return _refusals[0]
        code = set_up(self)
        if code < 0 and -code in _LASTING:
            _refusals.append(code)
        return code

    def close(self) -> None:
        """Close the queues. The kernel releases files that are still watched a moment later."""
        tear_down(self)

    def is_open(self) -> bool:
        """Return whether the queues are open."""
        return is_open(self)

    def is_shared(self) -> bool:
        """Return whether this process was forked since, so that the queues are its parent's."""
        return is_shared(self)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are answers; -1 if it is not open."""
        return ring_fd(self)

    def know(self, fd: int) -> int:
        """Know the open file behind a descriptor from now on; return 1 if it was known before.

        It refuses what epoll refuses: a descriptor that is not open, and files that are always ready.
        """
        return know_file(self, fd)

    def knows(self, fd: int) -> bool:
        """Return whether a descriptor still means the file that `know` noted for that number."""
        return knows_file(self, fd)

    def watch(self, fd: int, mask: int, generation: int) -> int:
        """Ask for the events of a descriptor once. The watch begins with `submit` or `wait`."""
        return put_watch(self, fd, mask, generation)

    def end(self, fd: int, generation: int) -> int:
        """Ask for the end of a watch, which then answers ECANCELED unless it has answered already."""
        return put_end(self, fd, generation)

    def submit(self) -> int:
        """Hand the requests over, and do not sleep."""
        return enter(self)

    def wait(self, timeout_ns: int, blocked_signal: int) -> int:
        """Hand the requests over and sleep for an answer; -1 sleeps without limit."""
        return sleep(self, timeout_ns, blocked_signal)

    def has_work(self) -> bool:
        """Return whether the kernel must be called for something besides sleeping."""
        return has_work(self)

    def has_answer(self) -> bool:
        """Return whether there is an answer; the methods below are about the oldest one."""
        return has_answer(self)

    def fd(self) -> int:
        """Return the descriptor of the answer; -1: none."""
        return answered_fd(self)

    def generation(self) -> int:
        """Return the generation that was given with the watch."""
        return answered_generation(self)

    def result(self) -> int:
        """Return the seen events, as epoll's mask, or a negative error number."""
        return answered_result(self)

    def next(self) -> None:
        """Drop the oldest answer."""
        advance(self)
