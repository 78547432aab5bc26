"""The system calls that a server makes for each request, counted by strace."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cases import EchoCase
from loops import Choice
from measure import Cores, MeasurementError, running_load, running_server

ATTACH_SECONDS = 10
SHOWN = 0.005  # calls that are rarer than this, for each request, are not worth a column


def is_possible() -> bool:
    """Return whether there is something to count with."""
    return shutil.which("strace") is not None


def table(
    chosen: Sequence[EchoCase], choices: Sequence[Choice], cores: Cores, seconds: float
) -> Iterator[str]:
    """Yield a line for each case and loop."""
    for case in chosen:
        title = case.name
        for loop in choices:
            try:
                calls = count(case, loop, cores, seconds)
            except MeasurementError as failure:
                yield f"{title:30} {loop.name:12} failed: {failure}"
            else:
                shown = sorted(calls.items(), key=lambda item: -item[1])
                listed = "  ".join(f"{name} {number:.2f}" for name, number in shown if number >= SHOWN)
                yield f"{title:30} {loop.name:12} {sum(calls.values()):6.2f}  {listed}"
            title = ""


def count(case: EchoCase, loop: Choice, cores: Cores, seconds: float) -> Mapping[str, float]:
    """Return the number of each system call that a server makes for one request."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running_server(case, loop, cores, folder) as (pid, address),
    ):
        summary = Path(folder, "calls")
        command = ["strace", "-q", "-f", "-c", "-U", "calls,name", "-o", str(summary), "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            _wait_until_traced(pid)
            found = running_load(case, loop, cores, address, seconds, warm_up=0.0, server=pid)
            tracer.send_signal(signal.SIGINT)
            _, complaints = tracer.communicate()
        if not summary.exists() or not found["requests"]:
            raise MeasurementError(complaints.strip() or "nothing was counted")
        return {name: calls / found["requests"] for name, calls in _read(summary.read_text())}


def _read(summary: str) -> Iterator[tuple[str, int]]:
    for line in summary.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdigit() and words[1] != "total":
            yield words[1], int(words[0])


def _wait_until_traced(pid: int) -> None:
    deadline = time.monotonic() + ATTACH_SECONDS
    status = Path(f"/proc/{pid}/status")
    while "TracerPid:\t0\n" in status.read_text():
        if time.monotonic() > deadline:
            raise MeasurementError("strace cannot attach to the server")
        time.sleep(0.01)
