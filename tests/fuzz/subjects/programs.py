"""Subprocesses: what they read, write and return, killed and ended in between."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.world import World

PROGRAMS: dict[str, tuple[str, ...]] = {
    "cat": ("cat",),
    "true": ("true",),
    "three": ("sh", "-c", "exit 3"),
    "both": ("sh", "-c", "echo out; echo err >&2"),
    "sleep": ("sleep", "1000"),
    "stubborn": ("sh", "-c", "trap '' TERM; echo ready; exec cat"),
    "none": ("no such program",),
}
PATIENCE = 20  # seconds: then it hangs
PLACES = {"pipe": PIPE, "null": DEVNULL, "out": STDOUT, "none": None}


class Programs(World):
    """Programs with children. Each operation is the whole life of a child, for only its end is certain."""

    def do_program(self, name: str, places: tuple[str, str, str], steps: list[tuple[Any, ...]]) -> Any:
        if self.loop.is_running():
            return None
        return self.loop.run_until_complete(asyncio.wait_for(self.life(name, places, steps), PATIENCE))

    async def life(self, name: str, places: Any, steps: list[tuple[Any, ...]]) -> Any:
        stdin, stdout, stderr = (PLACES[place] for place in places)
        program = await asyncio.create_subprocess_exec(
            *PROGRAMS[name], stdin=stdin, stdout=stdout or DEVNULL, stderr=stderr or DEVNULL
        )
        notes = Life(program, answers=name == "cat" and stdin == PIPE and stdout == PIPE)
        lasts = name == "sleep" or notes.answers
        try:
            for step in steps:
                try:
                    await getattr(notes, f"do_{step[0]}")(*step[1:])
                except Exception as error:  # asyncio leaves the descriptor of a child that nobody waits for
                    notes.note(step[0], type(error))
        finally:
            if program.returncode is None:
                program.kill() if name == "sleep" or notes.killed else None
            if program.stdin is not None:
                program.stdin.close()
        if stdout == PIPE and not notes.closed:
            rest = await program.stdout.read()  # type: ignore[union-attr]
            if not notes.killed:
                notes.lines.append(("rest", rest))
        code = await program.wait()
        transport = program._transport  # type: ignore[attr-defined]
        transport.close()
        pid = program.pid
        await asyncio.sleep(0)
        if notes.killed and (notes.killed > 1 or notes.ended or not lasts):
            code = None  # it may have ended by itself, or by another signal
        return [*notes.lines, code, transport.get_returncode() is None, transport.get_pid() == pid, gone(pid)]


class Life:
    """One child, and the certain facts about it."""

    def __init__(self, program: Any, answers: bool) -> None:
        self.program = program
        self.answers = answers
        self.expected = 0
        self.killed = 0  # how often
        self.closed = self.ended = False
        self.lines: list[Any] = []

    def note(self, event: str, *details: Any) -> None:
        if self.ended and event == "send_signal":
            return  # it may be gone by now, or not yet
        if self.answers and not self.killed and not self.closed:
            self.lines.append((event, *details))

    async def do_write(self, data: bytes) -> None:
        if self.program.stdin is None or self.ended:
            return
        self.program.stdin.write(data)
        await self.program.stdin.drain()
        self.expected += len(data)
        self.note("wrote")

    async def do_read(self) -> None:
        if self.answers and not self.killed and not self.closed:
            self.note("read", await self.program.stdout.readexactly(self.expected))
            self.expected = 0

    async def do_end(self) -> None:
        if self.program.stdin is not None:
            self.program.stdin.close()
            self.ended = True
            self.note("ended")

    async def do_send_signal(self, number: Any) -> None:
        self.killed += number in (signal.SIGTERM, signal.SIGKILL)
        self.program.send_signal(number)

    async def do_kill(self) -> None:
        self.killed += 1
        self.program.kill()

    async def do_terminate(self) -> None:
        self.killed += 1
        self.program.terminate()

    async def do_close(self) -> None:
        """Close a transport; asyncio kills its child."""
        self.killed += 1
        self.closed = True
        self.program._transport.close()

    async def do_cancelled_wait(self) -> None:
        waiting = asyncio.ensure_future(self.program.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    async def do_turns(self, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)


def gone(pid: int) -> bool:
    """Return whether the child has been reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def operations(effects: Any) -> Any:
    """Return the operations of a program on child programs."""
    steps = st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["@short", "@kilobyte", "@mutable", "@text"])),
        st.tuples(st.sampled_from(["read", "end", "kill", "terminate", "close", "cancelled_wait"])),
        st.tuples(st.just("send_signal"), st.sampled_from([0, 0, signal.SIGTERM, signal.SIGKILL, -1, "x"])),
        st.tuples(st.just("turns"), st.integers(0, 5)),
    )
    places = st.tuples(
        st.sampled_from(["pipe", "pipe", "null"]),
        st.sampled_from(["pipe", "pipe", "null", "none"]),
        st.sampled_from(["pipe", "null", "none", "out"]),
    )
    return st.tuples(
        st.just("program"),
        st.sampled_from([*sorted(PROGRAMS), "cat"]),
        places,
        st.lists(steps, max_size=5),
    )
