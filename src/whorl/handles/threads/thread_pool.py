"""The thread pool, which does blocking work without blocking the loop.

A single pool serves all loops of the process. Its threads are started when there is work for them,
are daemons, and wait for more. Slow work (name resolution) occupies at most half of them, so that
a resolver that does not answer never keeps the rest waiting.

    QUEUED --a thread takes it--> RUNNING --> DONE
    QUEUED --cancel()-----------------------> DONE
"""

from __future__ import annotations

import collections
import errno
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from whorl.core.callback import call_in_context, current_context
from whorl.core.copying import refuse_copy
from whorl.core.handle import Completion, Request
from whorl.core.kernel.errors import os_error
from whorl.core.limits import THREADPOOL_MAX_SIZE, THREADPOOL_SIZE

if TYPE_CHECKING:
    from typing import Self

    from whorl.core.loop.loop import Loop
    from whorl.core.process.host import Host

SIZE_VARIABLE = "WHORL_THREADPOOL_SIZE"


class Work(Request):
    """A call of `function` in a thread (libuv: ``uv_work_t``).

    When it is over, the loop calls `on_done(work, result, error)`; `error` is what the function
    raised, or OSError (ECANCELED) if the work was cancelled, or None.
    """

    __slots__ = ("_context", "_function", "_on_done", "_pool")

    loop: Loop

    def __init__(
        self,
        loop: Loop,
        function: Callable[[], Any],
        on_done: Callable[[Self, Any, BaseException | None], object] | None = None,
        *,
        slow: bool = False,
    ) -> None:
        super().__init__(loop)
        if not callable(function):
            raise TypeError(f"a callable object was expected by Work(), got {function!r}")
        if on_done is not None and not callable(on_done):
            raise TypeError(f"a callable object was expected by Work(), got {on_done!r}")
        self._function: Callable[[], Any] | None = function
        self._on_done: Callable[[Any, Any, BaseException | None], object] | None = on_done
        self._context = current_context()
        self._pool: ThreadPool = pool_of(loop._host)
        self._begin()
        try:
            self._submit(slow)
        except BaseException:
            self._end()
            raise

    def cancel(self) -> bool:
        """Take the work back if no thread has begun it; return whether that was so.

        The loop calls `on_done` even then.
        """
        if not self._pool.withdraw(self):
            return False
        self._deliver(None, os_error(errno.ECANCELED))
        return True

    def _submit(self, slow: bool) -> None:
        """Submit the work to the pool."""
        self.loop._held.push_all()
        self._pool.submit(self, slow=slow)

    def _execute(self) -> None:
        """Do the work; runs in a thread of the pool."""
        function = self._function
        if function is None:
            return
        try:
            result = function()
        except BaseException as error:
            self._deliver(None, error)
        else:
            self._deliver(result, None)

    def _deliver(self, result: Any, error: BaseException | None) -> None:
        self.loop._post_from_any_thread(Completion(self._finish, (result, error)))

    def _finish(self, result: Any, error: BaseException | None) -> None:
        self._end()
        on_done, self._on_done, self._function = self._on_done, None, None
        if on_done is not None:
            call_in_context(self._context, on_done, (self, result, error))


class ThreadPool:
    """At most `size` threads, and the work that waits for them, in order of arrival."""

    __reduce__ = refuse_copy

    def __init__(self, size: int = THREADPOOL_SIZE) -> None:
        if not 1 <= size <= THREADPOOL_MAX_SIZE:
            raise ValueError(f"a thread pool has 1 to {THREADPOOL_MAX_SIZE} threads, not {size}")
        self._size = size
        self._changed = threading.Condition()  # guards all attributes below
        self._quick: collections.deque[tuple[int, Work]] = collections.deque()
        self._slow: collections.deque[tuple[int, Work]] = collections.deque()
        self._submitted = 0  # the number of submitted works, which is also the number of the last one
        self._threads = 0
        self._waiting = 0  # threads that wait for work
        self._slow_busy = 0  # threads that do slow work

    @property
    def size(self) -> int:
        """The largest number of threads."""
        return self._size

    @property
    def slow_size(self) -> int:
        """The number of threads that may do slow work at a time: half of all, rounded up."""
        return (self._size + 1) // 2

    @property
    def threads(self) -> int:
        """The number of started threads."""
        return self._threads

    @property
    def busy(self) -> int:
        """The number of threads at work."""
        return self._threads - self._waiting

    @property
    def queue_length(self) -> int:
        """The number of works that wait for a thread."""
        return len(self._quick) + len(self._slow)

    def submit(self, work: Work, *, slow: bool = False) -> None:
        """Queue `work` for the next free thread."""
        with self._changed:
            work.loop._figures.count_jobs(1, 0, 0)
            self._submitted += 1
            queue = self._slow if slow else self._quick
            queue.append((self._submitted, work))
            if self.queue_length <= self._waiting or self._threads == self._size:
                self._changed.notify()
                return
            try:
                self._start_thread()
            except BaseException:
                if self._threads == 0:
                    queue.pop()
                    work.loop._figures.count_jobs(-1, 0, 0)
                    raise

    def withdraw(self, work: Work) -> bool:
        """Take back work that no thread has begun; return whether that was so."""
        with self._changed:
            for queue in (self._quick, self._slow):
                for entry in queue:
                    if entry[1] is work:
                        queue.remove(entry)
                        work.loop._figures.count_jobs(-1, 0, 0)
                        return True
            return False

    def _start_thread(self) -> None:
        name = f"whorl-pool-{self._threads + 1}"
        threading.Thread(target=self._worker, name=name, daemon=True).start()
        self._threads += 1

    def _worker(self) -> None:
        """Do work, for the life of a thread."""
        while True:
            work, slow = self._next()
            figures = work.loop._figures
            figures.count_jobs(0, 1, 0)
            try:
                work._execute()
            finally:
                figures.count_jobs(0, 0, 1)
                del work, figures  # a waiting thread keeps nothing alive
                if slow:
                    with self._changed:
                        self._slow_busy -= 1

    def _next(self) -> tuple[Work, bool]:
        """Wait for work that may be done now; return it, and whether it is slow."""
        with self._changed:
            while True:
                queue = self._next_queue()
                if queue is not None:
                    slow = queue is self._slow
                    self._slow_busy += slow
                    return queue.popleft()[1], slow
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1

    def _next_queue(self) -> collections.deque[tuple[int, Work]] | None:
        """Return, of the queues that may be served now, the one whose first entry came first."""
        if self._slow and self._slow_busy < self.slow_size:
            if not self._quick or self._slow[0][0] < self._quick[0][0]:
                return self._slow
        return self._quick or None


_pools: dict[int, ThreadPool] = {}  # by process: threads do not survive a fork


def pool_of(host: Host) -> ThreadPool:
    """Return the pool for the work of a loop with this host; made when it is first asked for."""
    pool = host.thread_pool()
    if pool is None:
        process = host.process_id()
        pool = _pools.get(process)
        if pool is None:
            # This is one step, without a lock that another thread may hold while the process is forked.
            pool = _pools.setdefault(process, ThreadPool(size_wanted()))
    return pool  # type: ignore[no-any-return]


def thread_pool(loop: Loop) -> ThreadPool:
    """Return the pool that does the blocking work of a loop; one serves all loops of the process."""
    return pool_of(loop._host)


def size_wanted() -> int:
    """Return the size of the pool that the environment asks for."""
    text = os.environ.get(SIZE_VARIABLE, "")
    if not text:
        return THREADPOOL_SIZE
    try:
        return ThreadPool(int(text)).size
    except ValueError:
        most = THREADPOOL_MAX_SIZE
        raise ValueError(f"{SIZE_VARIABLE} is a number from 1 to {most}, not {text!r}") from None
