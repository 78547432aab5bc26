"""Tries an installed Whorl, with nothing but Python: `python smoke.py --expect compiled`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import sys
import sysconfig
import tempfile

import whorl
from whorl.handles import Async, Timer


async def echo() -> None:
    """Send lines through a server and back."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    for number in range(100):
        writer.write(b"line %d\n" % number)
        assert await reader.readline() == b"LINE %d\n" % number
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


async def datagrams() -> None:
    """Send a datagram to ourselves."""
    arrived = asyncio.get_running_loop().create_future()

    class Protocol(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            arrived.set_result(data)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        Protocol, local_addr=("127.0.0.1", 0)
    )
    transport.sendto(b"datagram", transport.get_extra_info("sockname"))
    assert await arrived == b"datagram"
    transport.close()


async def programs_threads_and_files() -> None:
    """Run a program, a function in a thread, and read a file."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print(6 * 7)", stdout=asyncio.subprocess.PIPE
    )
    assert (await child.communicate())[0] == b"42\n"
    assert await asyncio.to_thread(os.getpid) == os.getpid()
    with tempfile.TemporaryDirectory() as folder:
        await whorl.fs.write_text(f"{folder}/file", "text")
        assert await whorl.fs.read_text(f"{folder}/file") == "text"


async def timeouts() -> None:
    """Let a timeout end a wait."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
            raise AssertionError("the timeout did not come")


async def everything() -> None:
    """Do all of it, on asyncio's face."""
    await asyncio.gather(echo(), datagrams(), programs_threads_and_files(), timeouts())


def machine() -> None:
    """Run handles of the machine."""
    loop = whorl.Loop()
    called: list[str] = []

    def on_async(handle: Async) -> None:
        called.append("async")
        handle.close()

    woken = Async(loop, on_async)

    def on_timer(timer: Timer) -> None:
        called.append("timer")
        woken.send()
        timer.close()

    Timer(loop).start(on_timer, timeout_ns=1_000_000)
    loop.run()
    loop.close()
    assert called == ["timer", "async"], called


def main() -> None:
    """Try it; end with an error if something does not work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--expect", choices=("compiled", "pure"), default="compiled")
    arguments = parser.parse_args()
    build = "compiled" if whorl.compiled else "pure"
    assert build == arguments.expect, f"this is the {build} build"
    has_gil = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
    asked_for = os.environ.get("WHORL_FREE_THREADED") == "0" or os.environ.get("PYTHON_GIL") == "1"
    needs_none = sysconfig.get_config_var("Py_GIL_DISABLED") and not asked_for
    assert not (has_gil and needs_none), "Whorl has turned the GIL on"
    for tasks in ("cpython", "compiled"):
        whorl.run(everything(), tasks=tasks)
    machine()
    importlib.import_module("whorl.inspector.recordings.page")  # It reads files of the package.
    gil = "with" if has_gil else "without"
    print(f"whorl {whorl.__version__}, {build}, Python {sys.version.split()[0]} {gil} the GIL: works")


if __name__ == "__main__":
    main()
