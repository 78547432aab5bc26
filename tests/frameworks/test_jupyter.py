"""A Jupyter kernel whose loop is Whorl's, and a client on Whorl that talks with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import whorl
from build_tools.sources import ROOT

pytest.importorskip("ipykernel", reason="ipykernel is not installed")
jupyter = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")

KERNEL = """
import whorl
whorl.install()
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
LIMIT = 60  # seconds for a cell: a kernel imports very much, which takes its time on a busy machine


class Notebook:
    """A client of a kernel that runs as a program."""

    def __init__(self, client: Any, process: subprocess.Popen[bytes]) -> None:
        self.client = client
        self.process = process

    async def run(self, cell: str, interrupts: bool = False) -> list[str]:
        """Return the outputs of a cell: its text, and its value or its error."""
        said: list[str] = []

        def note(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                said.append(content["text"].strip())
                if interrupts:
                    self.process.send_signal(signal.SIGINT)
            elif message["msg_type"] == "execute_result":
                said.append(content["data"]["text/plain"])

        reply = (await self.client.execute_interactive(cell, output_hook=note, timeout=LIMIT))["content"]
        if reply["status"] == "error":
            said.append(reply["ename"])
        return said


@asynccontextmanager
async def notebook(folder: Path) -> AsyncIterator[Notebook]:
    """Yield a kernel, and a client of it, over UNIX sockets in this folder."""
    file, _ = jupyter.write_connection_file(
        str(folder / "kernel.json"), transport="ipc", ip=str(folder / "zmq"), key=b"anything"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", KERNEL, "-f", file, "--HistoryManager.enabled=False"],
        cwd=ROOT,
        env={
            **os.environ,
            "HOME": str(folder),
            "IPYTHONDIR": str(folder),
            "JUPYTER_RUNTIME_DIR": str(folder),
        },
        stdout=subprocess.DEVNULL,
    )
    client = jupyter.AsyncKernelClient(connection_file=file)
    try:
        client.load_connection_file()
        client.start_channels(hb=False)  # A busy machine misses beats.
        await client.wait_for_ready(timeout=LIMIT)
        yield Notebook(client, process)
    finally:
        client.stop_channels()
        client.context.destroy()
        process.kill()
        await asyncio.to_thread(process.wait)


@pytest.mark.slow
async def test_a_kernel_runs_cells_and_tasks_between_them(loop: whorl.EventLoop, tmp_path: Path) -> None:
    signal.alarm(2 * LIMIT)
    async with notebook(tmp_path) as it:
        assert await it.run("import asyncio; type(asyncio.get_running_loop()).__module__") == [
            "'whorl.aio.loop.event_loop'"
        ]
        assert await it.run("print('begins'); await asyncio.sleep(0.01, 42)") == ["begins", "42"]
        assert await it.run("event = asyncio.Event(); task = asyncio.create_task(event.wait())") == []
        assert await it.run("task.done(), event.set()") == ["(False, None)"]
        assert await it.run("await task") == ["True"]
        assert await it.run("await asyncio.wait_for(asyncio.Event().wait(), 0.01)") == ["TimeoutError"]
        assert await it.run("asyncio.get_running_loop().run_until_complete(task)") == ["RuntimeError"]
        # Ctrl-C of a notebook, in Python code, in a call of the system's, and in a wait of the loop's.
        assert await it.run("print('a')\nwhile True: pass", interrupts=True) == ["a", "KeyboardInterrupt"]
        assert await it.run("import time; print('b'); time.sleep(99)", interrupts=True) == [
            "b",
            "KeyboardInterrupt",
        ]
        assert await it.run("print('c'); await asyncio.sleep(99)", interrupts=True) == ["c", "CancelledError"]
        assert await it.run("'goes on'") == ["'goes on'"]
        # It stops the thread that publishes before the one that answers here. The second one may wait for it,
        # on any loop, so only the answer is checked.
        reply = await it.client.shutdown(reply=True, timeout=LIMIT)
        assert reply["content"]["status"] == "ok"
