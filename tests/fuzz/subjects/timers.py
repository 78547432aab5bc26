"""A clock that the program moves; timeouts, cancellation and groups of tasks, as trees."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import ERRORS, Effect, World

Tree = tuple[Any, ...]


TICK = 1e-7  # seconds from one look at the clock to the next: asyncio runs equal deadlines in any order


class Timers(World):
    """Programs with a clock of their own."""

    turns = 12
    own_clock = True

    def __init__(self, make_loop: Any) -> None:
        super().__init__(make_loop)
        self.now = 1000.0
        self.loop.time = self.time
        self.queue: asyncio.Queue[int] = asyncio.Queue(1)
        self.event = asyncio.Event()

    def time(self) -> float:
        self.now += TICK
        return self.now

    def do_advance(self, seconds: float) -> None:
        self.now += seconds

    def do_when(self, number: int) -> Any:
        timers = [handle for handle in self.handles if isinstance(handle, asyncio.TimerHandle)]
        return round(timers[number % len(timers)].when(), 1) if timers else None

    def do_wake(self) -> None:
        self.event.set()
        self.event.clear()

    def do_tree(self, tree: Tree) -> None:
        self.start(self.grow(tree))

    async def grow(self, tree: Tree) -> Any:
        """Do what a tree says; how each of its branches ends is noted."""
        kind = tree[0]
        try:
            result = await getattr(self, f"grow_{kind}")(*tree[1:])
        except BaseException as error:
            self.lines.append((kind, type(error)))
            raise
        self.lines.append((kind, "done"))
        return result

    async def grow_sleep(self, seconds: float) -> int:
        return await asyncio.sleep(seconds, 1)

    async def grow_raise(self, error: str) -> None:
        raise ERRORS[error]

    async def grow_catch(self, tree: Tree) -> None:
        try:
            await self.grow(tree)
        except (Exception, asyncio.CancelledError) as error:
            self.lines.append(("caught", type(error)))

    async def grow_timeout(self, seconds: Any, tree: Tree) -> None:
        async with asyncio.timeout(seconds) as timeout:
            await self.grow(tree)
        self.lines.append(("expired", timeout.expired()))

    async def grow_reschedule(self, seconds: Any, tree: Tree) -> None:
        async with asyncio.timeout(1) as timeout:
            timeout.reschedule(None if seconds is None else self.now + seconds)
            await self.grow(tree)

    async def grow_wait_for(self, seconds: Any, tree: Tree) -> Any:
        return await asyncio.wait_for(self.grow(tree), seconds)

    async def grow_shield(self, tree: Tree) -> Any:
        task = self.loop.create_task(self.grow(tree))
        self.futures.append(task)
        return await asyncio.shield(task)

    async def grow_gather(self, trees: list[Tree], exceptions: bool) -> None:
        await asyncio.gather(*map(self.grow, trees), return_exceptions=exceptions)

    async def grow_group(self, trees: list[Tree]) -> None:
        async with asyncio.TaskGroup() as group:
            for tree in trees:
                group.create_task(self.grow(tree))

    async def grow_wait(self, trees: list[Tree], seconds: Any, when: str) -> Any:
        tasks = [self.loop.create_task(self.grow(tree)) for tree in trees]
        self.futures += tasks
        done, pending = await asyncio.wait(tasks, timeout=seconds, return_when=when)
        return len(done), len(pending)

    async def grow_cancel(self, number: int, tree: Tree) -> Any:
        self.do_cancel(number)
        return await self.grow(tree)

    async def grow_await(self, number: int) -> Any:
        return await self.any_future(number)

    async def grow_put(self, item: int) -> None:
        await self.queue.put(item)

    async def grow_get(self) -> int:
        return await self.queue.get()

    async def grow_event(self) -> bool:
        return await self.event.wait()

    # Signals, from the handler's making to its end: both loops share the process.

    def do_signals(self, steps: list[tuple[Any, ...]]) -> Any:
        if self.loop.is_running():
            return None
        return [self.signalled(*step) for step in steps] + [
            self.signalled("remove", number) for number in (signal.SIGUSR1, signal.SIGUSR2)
        ]

    def signalled(self, action: str, number: Any, effect: Effect = ("nothing",)) -> Any:
        try:
            if action == "add":
                return self.loop.add_signal_handler(number, self.callback, number, effect)
            if action == "remove":
                return self.loop.remove_signal_handler(number)
            if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
                signal.raise_signal(number)
            self.do_settle()
        except BaseException as error:
            return type(error)
        return None


def trees() -> Any:
    """Return the operations of tasks."""
    seconds = st.sampled_from([0, 0, 1, 2, 5, -1, None])
    leaves = st.one_of(
        st.tuples(st.just("sleep"), st.sampled_from([0, 0, 1, 2, 5])),
        st.tuples(st.just("raise"), st.sampled_from(["ValueError", "OSError", "Cancelled"])),
        st.tuples(st.just("await"), st.integers(0, 5)),
        st.tuples(st.just("put"), st.just(1)),
        st.tuples(st.sampled_from(["get", "event"])),
    )
    when = st.sampled_from([asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION, asyncio.ALL_COMPLETED])

    def larger(tree: Any) -> Any:
        several = st.lists(tree, min_size=1, max_size=3)
        return st.one_of(
            st.tuples(st.sampled_from(["timeout", "wait_for", "reschedule"]), seconds, tree),
            st.tuples(st.sampled_from(["catch", "shield"]), tree),
            st.tuples(st.just("gather"), several, st.booleans()),
            # One: a group cancels its tasks in the order of a set.
            st.tuples(st.just("group"), st.lists(tree, min_size=1, max_size=1)),
            st.tuples(st.just("wait"), several, seconds, when),
            st.tuples(st.just("cancel"), st.integers(0, 5), tree),
        )

    return st.recursive(leaves, larger, max_leaves=6)


def operations(effects: Any) -> Any:
    """Return the operations of a program on time and on signals."""
    numbers = st.sampled_from([signal.SIGUSR1, signal.SIGUSR2])
    signals = st.one_of(
        st.tuples(st.just("add"), numbers | st.sampled_from([9, -1, 70, "x"]), effects),
        st.tuples(st.sampled_from(["remove", "raise", "raise"]), numbers),
    )
    return st.one_of(
        *[st.tuples(st.just("tree"), trees())] * 3,
        *[st.tuples(st.just("advance"), st.sampled_from([0.5, 1, 1, 2, 10, -1]))] * 2,
        st.tuples(st.just("later"), st.sampled_from([0, 1, 1, 2, 5, -1]), st.integers(0, 5), effects),
        st.tuples(st.just("when"), st.integers(0, 5)),
        st.tuples(st.just("wake")),
        st.tuples(st.just("signals"), st.lists(signals, min_size=1, max_size=5)),
    )
