"""Threads and processes of a world: executors run their jobs in virtual time, the rest is refused by name."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from concurrent.futures import thread as pools
from typing import Any

from whorl.sim.errors import RealProcess, RealProgram, RealThread
from whorl.sim.patches.current import RUNNING, Replacement, host

_start = threading.Thread.start
_adjust, _shutdown = pools.ThreadPoolExecutor._adjust_thread_count, pools.ThreadPoolExecutor.shutdown


def _start_thread(self: threading.Thread) -> None:
    world = RUNNING.world
    if world is None or "threads" in world.allowed:
        _start(self)
        return
    raise RealThread(f"thread {self.name!r} was started")


def _plan_job(self: Any) -> None:
    """Run the job that was queued last at a time of the seed's, in the place of a thread."""
    host().threads.start(_run_job, self)


def _run_job(executor: Any) -> None:
    try:
        job = executor._work_queue.get_nowait()
    except Exception:
        return
    if job is not None:
        job.run(*_worker_arguments(executor))


def _worker_arguments(executor: Any) -> tuple[Any, ...]:
    """Return what a thread gives to a job: from 3.14 on, its context."""
    make = getattr(executor, "_create_worker_context", None)
    return (make(),) if make is not None else ()


def _end_executor(self: Any, wait: bool = True, *, cancel_futures: bool = False) -> None:
    """Shut an executor down: what is queued runs at once, or is cancelled."""
    with self._shutdown_lock:
        self._shutdown = True
    while True:
        try:
            job = self._work_queue.get_nowait()
        except Exception:
            return
        if job is None:
            continue
        if cancel_futures:
            job.future.cancel()
        elif wait:
            running = host()
            spent = running.spent
            job.run(*_worker_arguments(self))
            if running.runs_job:
                running.spent = max(spent, running.spent)
        else:
            self._work_queue.put(job)
            return


def _refuse_process(*args: Any, **options: Any) -> Any:
    raise RealProcess("os.fork was called")


def _refuse_system(command: Any, *args: Any, **options: Any) -> Any:
    raise RealProcess(f"the system was to run {command!r}")


def _refuse_program(self: Any, args: Any, *rest: Any, **options: Any) -> None:
    self._child_created = False
    self.returncode = None
    raise RealProgram(f"program {args!r} was started")


def _cores(pid: int = 0) -> set[int]:
    return set(range(CORES))


def _count_cores() -> int:
    return CORES


def _process_id() -> int:
    return host().process_id


def _set_handler(number: int, handler: Any) -> Any:
    return host().process.set_signal(number, handler)


def _handler(number: int) -> Any:
    return host().process.get_signal(number)


def _raise_signal(number: int) -> None:
    host().process.raise_signal(number)


def _kill(pid: int, number: int) -> None:
    host().process.kill(pid, number)


#: How many processors a host has, for programs that ask.
CORES = 4

THREADS: list[Replacement] = [
    (threading.Thread, "start", _start_thread),
    (pools.ThreadPoolExecutor, "_adjust_thread_count", _plan_job),
    (pools.ThreadPoolExecutor, "shutdown", _end_executor),
    (os, "fork", _refuse_process),
    (os, "posix_spawn", _refuse_system),
    (os, "system", _refuse_system),
    (subprocess.Popen, "__init__", _refuse_program),
    (os, "getpid", _process_id),
    (os, "cpu_count", _count_cores),
    (os, "sched_getaffinity", _cores),
    (os, "kill", _kill),
    (signal, "signal", _set_handler),
    (signal, "getsignal", _handler),
    (signal, "raise_signal", _raise_signal),
]
if hasattr(os, "process_cpu_count"):  # since Python 3.13
    THREADS.append((os, "process_cpu_count", _count_cores))
