"""Running a program with a recording, in a process of its own: its recording is read however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile

from whorl.inspector.recordings.recording import NotARecording, Recording, read_file

#: How much memory its events may take, in bytes; and if all callbacks are recorded.
RING, RING_OF_ALL = 16 << 20, 64 << 20
PATIENCE = 1.0


def run(program: str, arguments: tuple[str, ...], *, record_all: bool) -> tuple[Recording | None, int]:
    """Run a program as `whorl run` does; return its recording, if there is one, and its exit code."""
    folder = tempfile.mkdtemp(prefix="whorl-trace-", dir=_memory())
    path = os.path.join(folder, "recording")
    ring = RING_OF_ALL if record_all else RING
    settings = [f"recording={path}", f"ring={ring}", *(["all=1"] if record_all else [])]
    inherited = os.environ.get("WHORL_INSPECT", "")
    if "=" in inherited:
        settings.insert(0, inherited)
    words = [sys.executable, "-m", "whorl", "run", program, *arguments]
    try:
        code = _run(words, os.environ | {"WHORL_INSPECT": ",".join(settings)})
        return _read(path), code
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """Return a folder in memory, None if there is none: a disk may be slow."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def _read(path: str) -> Recording | None:
    try:
        return read_file(path)
    except (NotARecording, OSError):
        return None


def _run(words: list[str], environment: dict[str, str]) -> int:
    """Run a command to its end; return its exit code, as shells have it for one that a signal has ended.

    A signal from the terminal reaches both processes. One that only this process gets is handed on.
    """
    process = subprocess.Popen(words, env=environment)
    waited = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        while process.poll() is None:
            came = signal.sigtimedwait(waited, PATIENCE)
            if came is not None and came.si_signo != signal.SIGCHLD and came.si_code <= 0:
                process.send_signal(came.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = process.returncode
    return code if code >= 0 else 128 - code
