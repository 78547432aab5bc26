"""Draws `top.svg`: the live view of a program that is watched while a handler blocks its loop.

python -m build_tools --with test --config release -- docs/pictures/top.py
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whorl.inspector.asking import finding
from whorl.inspector.views.live import Live
from whorl.inspector.views.sources import Source

PROGRAM = """
import asyncio, random, time, whorl

async def handle_order(number):
    await asyncio.sleep(random.random() / 50)
    sum(range(random.randrange(20_000)))
    if number == 700:
        time.sleep(0.25)
    if number == 1200:
        open("orders.fifo").read()

async def serve(reader, writer):
    number = 0
    while line := await reader.readline():
        number += 1
        await asyncio.create_task(handle_order(number), name=f"order {number}")
        writer.write(line * 50)
        await writer.drain()

async def client(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(b"x" * 100 + b"\\n")
        for _ in range(50):
            await reader.readline()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(client(port) for _ in range(10)))

whorl.run(main())
"""
SIZE = (84, 24)
LONGEST_WAIT = 120.0
#: How long the last handler has blocked the loop when the picture is taken.
STUCK = 3.0


def main() -> None:
    """Run the program, look at it until it is stuck, and draw what is seen."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WHORL_INSPECT_DIR"] = os.path.join(folder, "recorded")
        Path(folder, "shop.py").write_text(PROGRAM, encoding="utf-8")
        os.mkfifo(os.path.join(folder, "orders.fifo"))
        environment = os.environ | {"WHORL_INSPECT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        program = subprocess.Popen([sys.executable, "shop.py"], cwd=folder, env=environment)
        try:
            picture = asyncio.run(_picture(program.pid))
        finally:
            program.kill()
            program.wait()
    # Without the fonts of another site, and without a name that differs from run to run.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    picture = re.sub(r"terminal-\d+", "top", picture)
    Path(__file__).with_name("top.svg").write_text(picture, encoding="utf-8")


async def _picture(pid: int) -> str:
    """Return the view of a process as SVG, once it has been stuck for long enough."""
    deadline = time.monotonic() + LONGEST_WAIT
    while not finding.all_recordings():
        if time.monotonic() > deadline:
            raise TimeoutError("the program is not recorded")
        await asyncio.sleep(0.1)
    view = Live(Source(pid), 1.0)
    async with view.run_test(size=SIZE):
        while not _is_stuck(view):
            if time.monotonic() > deadline:
                raise TimeoutError("the program is not stuck")
            await asyncio.sleep(0.1)
        return view.export_screenshot(title=f"whorl top {pid}")


def _is_stuck(view: Live) -> bool:
    process = view.process
    return process is not None and any(
        loop.call is not None and loop.call.stuck and loop.call.seconds > STUCK for loop in process.loops
    )


if __name__ == "__main__":
    main()
