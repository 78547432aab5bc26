"""The system calls that a server makes for each request, counted by strace."""

import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cases import Case, EchoCase
from loops import Choice
from measure import Cores, MeasurementError, running_load, running_server

ATTACH_SECONDS = 10
SHOWN = 0.005  # calls that are rarer than this, for each request, are not worth a column


def table(chosen: Sequence[Case], choices: Sequence[Choice], cores: Cores, seconds: float) -> Iterator[str]:
    """Yield a line for each echo and loop."""
    yield f"\n{'case':30} {'loop':12} calls for each request"
    for case in chosen:
        for loop in choices if isinstance(case, EchoCase) else ():
            calls = count(case, loop, cores, seconds)
            shown = sorted(calls.items(), key=lambda item: -item[1])
            listed = "  ".join(f"{name} {number:.2f}" for name, number in shown if number >= SHOWN)
            yield f"{case.name:30} {loop.name:12} {sum(calls.values()):6.2f}  {listed}"


def count(case: EchoCase, loop: Choice, cores: Cores, seconds: float) -> Mapping[str, float]:
    """Return the number of each system call that a server makes for one request."""
    with tempfile.NamedTemporaryFile("r") as summary, running_server(case, loop, cores) as (pid, address):
        command = ["strace", "-q", "-f", "-c", "-U", "calls,name", "-o", summary.name, "-p", str(pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            deadline = time.monotonic() + ATTACH_SECONDS
            while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
                if time.monotonic() > deadline:
                    raise MeasurementError("strace cannot attach to the server")
                time.sleep(0.01)
            found = running_load(case, loop, cores, address, seconds, warm_up=0.0, server=pid)
            tracer.send_signal(signal.SIGINT)
            _, complaints = tracer.communicate()
        calls = re.findall(r"^\s*(\d+) +(?!total)(\w+)$", Path(summary.name).read_text(), re.MULTILINE)
    if not calls or not found["requests"]:
        raise MeasurementError(complaints.strip() or "nothing was counted")
    return {name: int(number) / found["requests"] for number, name in calls}
