"""One run: a program in a world, from its first turn to the last."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, Unpack

from whorl.sim.chance.decisions import Decisions
from whorl.sim.chance.strategies import taking_turns
from whorl.sim.chance.tape import HASH_SEED, Tape, tape_of
from whorl.sim.errors import Diverged, ParallelThreads, RunEnded, Subinterpreter, Unsimulated
from whorl.sim.patches.installed import running
from whorl.sim.patches.random_state import random_state, words_drawn
from whorl.sim.running.result import Result
from whorl.sim.running.trace import write_trace
from whorl.sim.wire.timeline import SECOND
from whorl.sim.world.options import Patches, RunKeywords, RunOptions
from whorl.sim.world.world import World

T = TypeVar("T")

#: The options that a world without a program of its own has not.
_OF_RUNS = {"strategy", "trace", "thinned", "variant", "asks"}

#: A program for a world: a coroutine function that takes the world, or nothing.
Main = Callable[..., Coroutine[Any, Any, T]]


def _is_main_interpreter() -> bool:
    """Return whether this is the interpreter that the process began with."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        with suppress(ImportError):
            module = importlib.import_module(name)
            return bool(module.get_current() == module.get_main())
    return True


_IN_MAIN_INTERPRETER = _is_main_interpreter()


def run(main: Main[T], *, seed: int | Tape = 0, **options: Unpack[RunKeywords]) -> Result[T]:
    """Run a program in a world of its own; return what came of it.

    `main` is a coroutine function that takes the world, or nothing. `seed` decides all that asyncio leaves
    open; a tape repeats a run. `faults` are rates, or the name of a profile: none, calm, light, rough, swarm.
    A run may take `limit_s` virtual seconds, `real_s` real ones, and `turns` turns of its loops. If a task of
    the main host waits longer than `stall_s` virtual seconds for anything but `asyncio.sleep`, that is a
    finding. `tls` is "seeded", or "real": the digest then takes only the sizes of what is sent. `allow` names
    what is no failure: "files", "leaks", "threads" or "unhandled" (an error that no code handles). `cpu` is
    the time that code takes; None: none. `net` is what lines do to packets if no link says otherwise. `tasks`
    is "compiled" for Whorl's own tasks (`whorl.run`). `trace` is the path for a trace. Raises ValueError for
    another name there or a `stall_s` that is not positive, OSError if the trace cannot be written, and
    RuntimeError inside another world. A `main` that is no coroutine function raises TypeError.
    """
    return run_with(main, seed, RunOptions(**options))


def _show_options(function: Any) -> None:
    """Let the signature of `run` show its options one by one, for `help` and the reference."""
    signature = inspect.signature(function)
    own = list(signature.parameters.values())[:-1]
    function.__signature__ = signature.replace(
        parameters=[*own, *inspect.signature(RunOptions).parameters.values()]
    )


_show_options(run)


def run_with(main: Main[T], seed: int | Tape, options: RunOptions) -> Result[T]:
    """Run a program with the options of a run."""
    takes_world = _takes_world(main)
    if isinstance(seed, Tape):
        options = replace(options, faults=seed.faults)
    if options.trace is not None:
        options = replace(options, keeps_calls=True)
    with _opened(World(_decisions(seed, options), options, drives_main=True)) as world:
        value = _live(world, main, takes_world)
    result = _result(value, world)
    if options.trace is not None:
        write_trace(result, options.trace)
    return result


def _decisions(seed: int | Tape, options: RunOptions) -> Decisions:
    tape = seed.decisions if isinstance(seed, Tape) else None
    number = seed.seed if isinstance(seed, Tape) else int(seed)
    decisions = Decisions(number, tape, thinned=options.thinned, variant=options.variant)
    decisions.schedule = (options.strategy or taking_turns)(number + options.variant)  # type: ignore[operator]
    if options.asks:
        decisions.asked = []
    return decisions


def _result(value: T | None, world: World) -> Result[T]:
    decisions, digest = world.decisions, world.digest.value()
    return Result(
        value=value,
        findings=world.findings,
        remarks=world.remarks,
        digest=digest,
        tape=Tape(world.seed, dict(decisions.taken), world.options.faults, digest, HASH_SEED),
        elapsed_s=world.timeline.now / SECOND,
        turns=world.turns,
        reached=world.reached,
        story=[_line(note) for note in world.notes],
        log=list(world.log or ()),
        calls=world.digest.kept,
        tasks=world.digest.tasks,
        packets=world.net.packets or [],
        moments=decisions.moments,
        asked=decisions.asked or [],
        random_words=world.random_words,
        random_calls=world.random_calls,
    )


def _line(note: tuple[int, str, dict[str, Any]]) -> str:
    time, text, fields = note
    shown = " ".join(f"{name}={value!r}" for name, value in fields.items())
    return f"{time / 1e6:12.3f} ms  {text} {shown}".rstrip()


def _takes_world(main: Callable[..., Any]) -> bool:
    if not callable(main):
        raise TypeError(f"a coroutine function was expected, got {main!r}")
    if isinstance(main, FunctionType) and not hasattr(main, "__wrapped__"):
        return main.__code__.co_argcount > len(main.__defaults__ or ())
    try:
        parameters = inspect.signature(main).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.default is each.empty and each.kind in (0, 1) for each in parameters)


def open_world(
    seed: int | Decisions = 0,
    *,
    drives_main: bool = False,
    **options: Unpack[RunKeywords],
) -> AbstractContextManager[World]:
    """Open a world for the time of a `with` block, for code that runs a loop by itself.

    `world.main.loop` is the loop to run, by `run_until_complete` or by a test framework. While it sleeps, the
    world goes on. Options are those of `run`, without those of a strategy and a trace. Raises RuntimeError
    inside another world, ParallelThreads in a Python without the interpreter's lock, and Subinterpreter in a
    subinterpreter.
    """
    if given := _OF_RUNS & options.keys():
        raise TypeError(f"only `run` has the option {min(given)!r}")
    decisions = seed if isinstance(seed, Decisions) else Decisions(seed)
    return _opened(World(decisions, RunOptions(**options), drives_main=drives_main))


@contextmanager
def _opened(world: World) -> Iterator[World]:
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ParallelThreads("a world was opened without the interpreter's lock")
    if not _IN_MAIN_INTERPRETER:
        raise Subinterpreter("a world was opened in a subinterpreter")
    with running(world):
        world.begin()
        if Patches.CHANCE in world.options.patches:
            world.random_start = random_state()
        try:
            yield world
        finally:
            if world.findings and world.random_start is not None:
                world.random_words = words_drawn(world.random_start)
            world.end()


def _live(world: World, main: Main[T], takes_world: bool) -> T | None:
    """Run `main` on the main host, and end that host as `asyncio.run` ends a loop."""
    host = world.main
    value: T | None = None
    with world.acting_as(host):
        coroutine = main(world) if takes_world else main()
        if not inspect.iscoroutine(coroutine):
            raise TypeError(f"a coroutine was expected, got {coroutine!r}")
        task = host.main_task = host.loop.create_task(coroutine, name="main")
    try:
        world.run_until(task.done)
        if task.done():
            if task.cancelled():
                world.find("exception", "main was cancelled", host=host.name)
            elif (error := task.exception()) is not None:
                if isinstance(error, Unsimulated):
                    world.find("limit", str(error), host=host.name, exception=error)
                else:
                    world.find("exception", _shown(error), host=host.name, exception=error)
            else:
                value = task.result()
        if task.done():
            world.note_end()
            _wind_down(world)
            world.check_end()
    except RunEnded as error:
        world.find(type(error).__name__.lower(), str(error))
    except Unsimulated as error:
        world.find("limit", str(error), host=world.current.name, exception=error)
    except (Exception, SystemExit) as error:  # out of a job, an event of the world's, or sys.exit
        world.find("exception", _shown(error), host=world.current.name, exception=error)
    return value


def _shown(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _wind_down(world: World) -> None:
    """End the main host's tasks, generators and executor."""
    host = world.main
    before = len(world.findings)
    with world.acting_as(host):
        left = [task for task in asyncio.all_tasks(host.loop) if not task.done()]
        ending = host.loop.create_task(_end(left, host.loop), name="ending")
    try:
        world.run_until(ending.done)
    except RunEnded as error:
        if len(world.findings) == before:
            world.find(type(error).__name__.lower(), f"while the tasks were cancelled at the end: {error}")
        return
    if ending.done() and not ending.cancelled() and (failure := ending.exception()) is not None:
        world.find("exception", f"at the end: {_shown(failure)}", host=host.name, exception=failure)
    world.collect()


async def _end(left: list[asyncio.Task[Any]], loop: Any) -> None:
    for task in sorted(left, key=hash):
        task.cancel()
    for task in left:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler(
                {
                    "message": "unhandled exception while the tasks were cancelled at the end",
                    "exception": error,
                    "task": task,
                }
            )
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def replay(main: Main[T], tape: Tape | int | str | Path, **options: Unpack[RunKeywords]) -> Result[T]:
    """Run a program again from a tape or a seed. Raises Diverged if a tape's run was not this one.

    A text is a seed, a tape's word as a report shows it, or the path of a tape. Raises ValueError for others,
    and OSError for a file that cannot be read.
    """
    if isinstance(tape, (str, Path)):
        tape = tape_of(tape)
    result = run(main, seed=tape, **options)
    if isinstance(tape, Tape) and tape.digest and tape.digest != result.digest:
        raise Diverged(
            f"the run's digest is {result.digest}, that of the tape is {tape.digest}. The program, a library "
            "or the Python is another one, or the program depends on something outside the world."
        )
    return result
