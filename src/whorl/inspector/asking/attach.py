"""Beginning to inspect a process that runs: Python's own remote debugging, of Python 3.14 and newer.

The process is asked to run one file, whose text is always the same. Python runs it between two instructions
of the main thread. A loop that sleeps in the kernel executes none, so its thread is interrupted for a
moment: `epoll_wait` returns, and the loop goes on as after any signal. This is done as a debugger does it
(ptrace), so that nobody sees the process stop. Reading another process's memory, as the request does, needs
the same rights.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time

from whorl.inspector.asking import directory, places
from whorl.inspector.asking.client import Failed, NotInspected, user_of

#: The seconds for which the process may take to run the file.
PATIENCE = 5.0
#: The seconds for which the target's Python may take to start, on a busy machine.
LONGEST_START = 30.0
#: The seconds after which a process that has not run it is interrupted.
UNHURRIED = 0.1
PAUSE = 0.01
#: The most bytes of what the process tells.
LONGEST_ANSWER = 4096

#: The process runs this, and only this. It tells its end by a file, or leaves nothing if nobody waits for it.
#: Whorl is not imported into a program that does not use it.
SCRIPT = """\
import sys
def begin(folder):
    if "whorl" not in sys.modules:
        answer = "none"
    else:
        try:
            from whorl.inspector.inspector import start_from_outside
            start_from_outside()
            answer = "begun"
        except Exception as error:
            answer = f"failed {type(error).__name__}: {error}"
    with open(folder + "/answer.new", "w") as file:
        file.write(answer)
    import os
    os.rename(folder + "/answer.new", folder + "/answer")
    if os.path.exists(folder + "/late"):
        for name in os.listdir(folder):
            os.unlink(folder + "/" + name)
        os.rmdir(folder)
"""

#: The target's own interpreter runs this: both must have the same version.
HELPER = """\
import sys
if not hasattr(sys, "remote_exec"):
    sys.exit("version " + sys.version.split()[0])
if len(sys.argv) > 1:
    try:
        sys.remote_exec(int(sys.argv[1]), sys.argv[2])
    except PermissionError as error:
        sys.exit(f"permission {error}")
    except Exception as error:
        sys.exit(f"failed {type(error).__name__}: {error}")
"""

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?(t|d|-dbg)?")


class Refused(Failed):
    """The inspector cannot begin in the process; the text says why."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 6)


def attach(pid: int) -> None:
    """Let the inspector begin in a process of the user's. Raises Failed."""
    user = user_of(pid)
    began = directory.start_time(pid)
    python = _interpreter(pid)
    _check(pid, python)
    folder = tempfile.mkdtemp(prefix="whorl-attach-")
    keeps = False
    try:
        script = os.path.join(folder, "begin.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"{SCRIPT}begin({folder!r})\n")
        if user != os.geteuid():
            for path in (script, folder):  # The folder is not the user's before.
                os.chown(path, user, -1, follow_symlinks=False)
        _request(pid, python, script)
        try:
            answer = _answer(pid, began, folder)
        except _Late:
            keeps = True  # The process will run the file when it can, and remove it.
            _mark_late(folder)
            raise
    finally:
        if not keeps:
            shutil.rmtree(folder, ignore_errors=True)
    if answer == "none":
        raise Refused(f"process {pid} does not use Whorl: it has not imported it")
    if answer != "begun":
        raise Refused(f"the inspector did not begin in process {pid}: {answer.removeprefix('failed ')}")


def _mark_late(folder: str) -> None:
    """Let the process remove the folder. It is the process's, so a link in it is not followed."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(os.path.join(folder, "late"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW))


class _Late(Refused):
    """The process does not run the file for now."""


def _interpreter(pid: int) -> str:
    """Return the path of a process's Python. Raises Refused if it is none, or cannot be run here."""
    try:
        path = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
        is_here = os.path.samefile(path, f"/proc/{pid}/exe")
    except PermissionError:
        raise _no_right(pid) from None
    except OSError:
        is_here, path = False, ""
    if not _PYTHON.fullmatch(os.path.basename(path)) and path:
        raise Refused(f"process {pid} does not run Python, but {os.path.basename(path)}")
    if not is_here or places.own_number(pid) != pid:
        raise Refused(f"process {pid} has files of its own: run `whorl attach` inside of its container")
    status = os.stat(path)
    if os.geteuid() == 0 and (status.st_uid != 0 or status.st_mode & 0o022):
        raise Refused(f"others than root can change {path}, so root does not run it: attach as that user")
    return path


def _no_right(pid: int) -> Refused:
    """Return the refusal by the system."""
    if os.geteuid() == 0:
        why = "root has no CAP_SYS_PTRACE here, or the process is protected, as process 1 may be"
    else:
        scope = "1 allows only children, 0 all of the user"
        why = f"see /proc/sys/kernel/yama/ptrace_scope ({scope}), or run as root"
    return Refused(f"this process may not look into process {pid}: {why}")


def _check(pid: int, python: str) -> None:
    """Raise Refused if remote debugging is turned off in a process, or its Python is too old."""
    if places.environment_of(pid).get("PYTHON_DISABLE_REMOTE_DEBUG"):
        raise Refused(f"process {pid} was started with PYTHON_DISABLE_REMOTE_DEBUG")
    words = _command(pid)
    if "-Xdisable-remote-debug" in words or ("-X", "disable-remote-debug") in itertools.pairwise(words):
        raise Refused(f"process {pid} was started with -X disable-remote-debug")
    found = _run(python, HELPER)
    if found.startswith("version "):
        version = found.removeprefix("version ")
        raise Refused(
            f"process {pid} runs Python {version}, which cannot be attached to:"
            " that needs 3.14. Start it with WHORL_INSPECT=1"
        )
    if found:
        raise Refused(f"{python} does not run: {found}")


def _command(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")]
    except OSError:
        return []


def _request(pid: int, python: str, script: str) -> None:
    """Ask a process to run a file. Raises Refused."""
    found = _run(python, HELPER, str(pid), script)
    if found.startswith("permission "):
        raise _no_right(pid)
    if found:
        raise Refused(f"process {pid} refused: {found.removeprefix('failed ')}")


def _run(python: str, *arguments: str) -> str:
    """Run code by another Python; return what it says of its failure, nothing if it did not fail."""
    # A variable or a file of this user's must not change what it does.
    command = [python, "-I", "-S", "-c", *arguments]
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_START, errors="replace"
        )
    except OSError as error:
        return str(error.strerror)
    except subprocess.TimeoutExpired:
        return f"it has not ended after {LONGEST_START:.0f} s"
    last = found.stderr.strip().split("\n")[-1]
    return (last or f"exit code {found.returncode}") if found.returncode else ""


def _answer(pid: int, began: int | None, folder: str) -> str:
    """Wait until a process has run the file, and interrupt it if it sleeps; return what the file told."""
    start = time.monotonic()
    interrupted = 0
    while True:
        if (answer := _read_answer(os.path.join(folder, "answer"))) is not None:
            return answer
        if directory.start_time(pid) != began:
            raise NotInspected(f"process {pid} has ended")
        waited = time.monotonic() - start
        if waited > PATIENCE:
            raise _Late(_why_late(pid))
        # It may have been interrupted between two sleeps, in code that repeats its system call.
        if waited > UNHURRIED * (1 << interrupted) and directory.state_of(pid) == "S":
            interrupted += 1
            interrupt(pid)
        time.sleep(PAUSE)


def _read_answer(path: str) -> str | None:
    """Return what the process told; None if it has not yet. The folder is its own: anything may be there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.read(descriptor, LONGEST_ANSWER).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _why_late(pid: int) -> str:
    state = directory.state_of(pid)
    if state in ("T", "t"):
        why = "it is stopped"
    elif state == "R":
        why = "it is running code that is not Python's"
    else:
        why = "its main thread waits in the kernel, or for the interpreter's lock"
    return f"process {pid} has not begun yet: {why}. It will when it executes Python's instructions again"


# Interrupting.

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


def interrupt(pid: int) -> None:
    """End the system call in which a process's main thread sleeps, if it is one that a signal would end."""
    import ctypes

    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = [ctypes.c_long] * 4
    trace.restype = ctypes.c_long
    if trace(_SEIZE, pid, 0, 0) != 0:
        return  # A debugger has it.
    try:
        if trace(_INTERRUPT, pid, 0, 0) == 0:
            os.waitpid(pid, _WALL)
    except ChildProcessError:
        return  # It has ended.
    finally:
        trace(_DETACH, pid, 0, 0)
