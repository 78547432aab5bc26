"""Random programs of asyncio for TLS, subprocesses, files and signals, run by the kernel and in a world."""

from __future__ import annotations

import ast
import asyncio
import errno
import inspect
import os
import random
import signal
import socket
import tempfile
from typing import Any

import whorl
from tests.sim.programs.contexts import for_client, for_server
from whorl import fs, sim

#: Each line of a program, and what it gave.
Notes = list[tuple[str, Any]]

_TLS_ENDS = """
    a.close() | await b.read(-1) | b.close() | await a.wait_closed() | await b.wait_closed()
    a.abort() | await b.read(-1) | b.close() | await b.wait_closed() | await a.wait_closed()
    b.write(b"last") | b.close() | await a.read(-1) | a.close() | await a.wait_closed()
    a.write_eof()
    await a.drain() | a.close() | a.write(b"x") | await a.drain() | await b.read(-1)
    b.abort() | await a.read(-1) | a.write(b"x") | await a.drain() | a.close() | await a.wait_closed()
"""

_SCRIPTS = """
    echo out
    echo err >&2
    cat
    exit 3
    kill -TERM $$
    kill -KILL $$
"""

_FILE_LINES = """
    await open_as("{f}", {path}, "{mode}")
    await open_as("{f}", {path}, "{mode}")
    await {f}.write(bytes({size}))
    await {f}.write(b"abc")
    await {f}.read({size})
    await {f}.seek({size})
    await {f}.tell()
    await {f}.truncate({size})
    await {f}.flush()
    await {f}.fsync()
    await {f}.close()
    await fs.rename({path}, {other})
    await fs.link({path}, {other})
    await fs.symlink({path}, {other})
    await fs.remove({path})
    await fs.mkdir({path})
    await fs.rmdir({path})
    sorted(await fs.listdir({path}))
    (await fs.stat({path})).st_size if await fs.is_file({path}) else await fs.exists({path})
    await fs.read_bytes({path})
    await fs.write_bytes({path}, b"content")
"""

_SIGNAL_LINES = """
    loop.add_signal_handler({number}, got.append, "{word}")
    loop.add_signal_handler({number}, got.append, "{word}")
    loop.remove_signal_handler({number})
    signal.signal({number}, lambda *_: got.append("{word} at once")) and None
    os.kill(os.getpid(), {number})
    os.kill(os.getpid(), {number})
    signal.raise_signal({number})
    got.append("{word}")
    loop.call_soon(got.append, "{word} soon") and None
"""

KINDS = ("tls", "subprocesses", "files", "signals")


def _choices(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def program(kind: str, seed: int) -> list[str]:
    """Return the lines of a random program."""
    chance = random.Random(f"{kind} {seed}")
    if kind == "tls":
        return [*_exchanges(chance), *chance.choice(_choices(_TLS_ENDS)).split(" | ")]
    if kind == "subprocesses":
        script = "; ".join(chance.choice(_choices(_SCRIPTS)) for _ in range(chance.randrange(1, 5)))
        return [f"await outcome({script!r}, {chance.choice([b'', b'input'])!r}, {chance.choice([-1, -2])})"]
    lines = _choices(_FILE_LINES if kind == "files" else _SIGNAL_LINES)
    return [
        chance.choice(lines).format(
            f=chance.choice("fg"),
            path=f'root + "/{chance.choice(["a", "b", "d", "d/c"])}"',
            other=f'root + "/{chance.choice(["a", "b", "d", "d/c"])}"',
            mode=chance.choice(["rb", "wb", "ab", "r+b", "w+b", "xb"]),
            size=chance.choice([0, 1, 3, 10, 5000]),
            number=chance.choice(["signal.SIGURG", "signal.SIGWINCH"]),
            word=f"line {number}",
        )
        for number in range(20)
    ]


def _exchanges(chance: random.Random) -> list[str]:
    """Return lines that send and receive; none waits for bytes that nobody has sent."""
    lines, waiting = [], {"a": 0, "b": 0}
    for _ in range(chance.randrange(8)):
        end, peer = chance.choice(["ab", "ba"])
        if waiting[end] and chance.random() < 0.6:
            size = chance.randrange(waiting[end] + 1)
            waiting[end] -= size
            lines.append(f"await {end}.readexactly({size})")
        else:
            size = chance.choice([0, 1, 5, 40_000])
            waiting[peer] += size
            lines.append(f"{end}.write(bytes({size}))")
    # An end that leaves while bytes are under way resets its peer, or not: that is a matter of time.
    return [*lines, *(f"await {end}.readexactly({size})" for end, size in waiting.items())]


class End:
    """One end of a TLS connection: what it reads, and what it writes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.read, self.readexactly = reader.read, reader.readexactly
        self.write, self.drain, self.write_eof = writer.write, writer.drain, writer.write_eof
        self.close, self.wait_closed, self.abort = writer.close, writer.wait_closed, writer.transport.abort


async def _connected() -> dict[str, Any]:
    accepted = asyncio.get_running_loop().create_future()
    context = for_server()
    context.num_tickets = 0  # They would be under way when the connection is open.
    server = await asyncio.start_server(lambda *ends: accepted.set_result(ends), "127.0.0.1", 0, ssl=context)
    near = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=for_client())
    far = await accepted
    server.close()
    return {"a": End(*near), "b": End(*far)}


async def _outcome(script: str, given: bytes, errors: int) -> Any:
    """Return what a shell writes for a script, and its exit code."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, stdin=pipe, stdout=pipe, stderr=errors
    )
    return await process.communicate(given), process.returncode


async def shell(stand_in: sim.Program) -> int:
    """Do what a shell does, for the lines above."""
    for line in stand_in.args[2].split("; "):
        match line.split():
            case ["exit", code]:
                return int(code)
            case ["cat"]:
                stand_in.stdout.write(await stand_in.stdin.read())
            case ["kill", option, _]:
                os.kill(stand_in.pid, signal.Signals[f"SIG{option[1:]}"])
                await asyncio.sleep(1)
            case ["echo", word, *rest]:
                (stand_in.stderr if rest else stand_in.stdout).write(f"{word}\n".encode())
        await stand_in.stdout.drain()
        await stand_in.stderr.drain()
    return 0


async def perform(kind: str, lines: list[str], root: str) -> Notes:
    """Run a program; return what each line gave."""
    loop, got = asyncio.get_running_loop(), list[str]()
    words: dict[str, Any] = {"loop": loop, "got": got, "os": os, "signal": signal, "fs": fs, "root": root}
    words["outcome"] = _outcome

    async def open_as(name: str, path: str, mode: str) -> None:
        if name in words:
            await words[name].close()
        words[name] = await fs.open(path, mode)

    words["open_as"] = open_as
    if kind == "tls":
        words.update(await _connected())
    former = {number: signal.getsignal(number) for number in (signal.SIGURG, signal.SIGWINCH)}
    try:
        notes: Notes = []
        for line in lines:
            value = await _value(line, words)
            if kind == "signals":
                await _one_poll()
            notes.append((line, (value, list(got)) if kind == "signals" else value))
        return notes
    finally:
        for name in ("f", "g"):
            if name in words:
                await words[name].close()
        for name in ("a", "b"):
            if name in words:
                words[name].abort()
        for number, handler in former.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


async def _value(line: str, words: dict[str, Any]) -> Any:
    try:
        value = eval(compile(line, "program", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), words)
        return await value if inspect.isawaitable(value) else value
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except Exception as error:
        return type(error).__name__


async def _one_poll() -> None:
    """Wait until a descriptor that is written to now was found ready."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    found = asyncio.Event()
    loop.add_reader(theirs, found.set)
    ours.send(b"x")
    await found.wait()
    loop.remove_reader(theirs)
    ours.close()
    theirs.close()


def on_kernel(kind: str, lines: list[str]) -> Notes:
    """Run a program on the machine's kernel."""
    with tempfile.TemporaryDirectory() as root:
        return whorl.run(perform(kind, lines, root))


def in_world(kind: str, lines: list[str]) -> Notes:
    """Run a program in a world without faults."""

    async def main(world: sim.World) -> Notes:
        world.program("sh", shell)
        return await perform(kind, lines, "/srv")

    return sim.run(main, faults="none", cpu=None, allow={"leaks"}).check()  # type: ignore[no-any-return]


def difference(kind: str, seed: int) -> str:
    """Return where a program finds a difference between kernel and world, as code; empty: nowhere."""
    lines = program(kind, seed)
    notes = zip(on_kernel(kind, lines), in_world(kind, lines), strict=True)
    done: list[str] = []
    for (line, outcome), (_, answer) in notes:
        done.append(line)
        if outcome != answer:
            code = "\n".join(done)
            return f"{kind}, seed {seed}:\n{code}\n# {outcome!r}, in a world {answer!r}"
    return ""
