"""A guard of mapped memory: a process goes on if the file is made shorter, and other errors end it."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys

import pytest

import whorl

pytestmark = pytest.mark.skipif(not whorl.compiled, reason="uncompiled, there is no handler")

#: AddressSanitizer ends a process in its own way.
DEATHS = {-signal.SIGBUS, 1} if os.environ.get("WHORL_CONFIG") == "sanitized" else {-signal.SIGBUS}

#: The number of `rt_sigqueueinfo`: a process may send itself a signal of any kind.
QUEUE_SIGNAL = {"x86_64": 129, "aarch64": 138}.get(platform.machine())

BEGIN = (
    f"QUEUE_SIGNAL = {QUEUE_SIGNAL}\n"
    + """
import ctypes, faulthandler, mmap, os, resource, signal, tempfile, threading
from whorl.core.recording.guard import Guard

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
PAGE = mmap.PAGESIZE

class Memory:
    def __init__(self):
        self.file = tempfile.TemporaryFile()
        os.truncate(self.file.fileno(), 4 * PAGE)
        self.memory = mmap.mmap(self.file.fileno(), 4 * PAGE)
        self.memory[:] = b"x" * 4 * PAGE

    def lose(self, size=0):
        os.truncate(self.file.fileno(), size)

def caught():
    with open("/proc/self/status") as file:
        [mask] = [line.split()[1] for line in file if line.startswith("SigCgt")]
    return int(mask, 16) >> signal.SIGBUS - 1 & 1

def tell_of_broken_memory():  # BUS_MCEERR_AO: the kernel tells of memory that nobody has touched
    info = (ctypes.c_int * 32)(signal.SIGBUS, 0, 5)
    assert ctypes.CDLL(None).syscall(QUEUE_SIGNAL, os.getpid(), signal.SIGBUS, info) == 0

mine, other = Memory(), Memory()
"""
)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGIN + code], capture_output=True, text=True, timeout=60
    )


def lives(code: str) -> list[str]:
    """Return the words that a process has written, which ended in order."""
    ended = run(code)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


@pytest.mark.parametrize("size", ["0", "PAGE"])
def test_guard_puts_zeros_in_the_place_of_all_memory(size: str) -> None:
    code = f"guard = Guard(mine.memory); mine.lose({size}); mine.memory[3 * PAGE] = 7"
    assert lives(f"{code}; print(*mine.memory[::PAGE])") == ["0", "0", "0", "7"]


def test_guard_is_one_of_several() -> None:
    code = """
guards = Guard(mine.memory), Guard(other.memory)
other.lose()
other.memory[0] = 1
print(other.memory[0], mine.memory[0])
mine.lose()
mine.memory[0] = 2
print(other.memory[0], mine.memory[0])
"""
    assert lives(code) == ["1", "120", "1", "2"]


# Of all threads, `faulthandler` may crash: it reads stacks that change meanwhile.
@pytest.mark.parametrize("over", ["", "faulthandler.enable(all_threads=False)"])
def test_guard_serves_threads_that_write_at_once(over: str) -> None:
    code = f"""
guard = Guard(mine.memory)
{over}
address = ctypes.addressof(ctypes.c_char.from_buffer(mine.memory))
begin = threading.Barrier(8)

def write(number):
    begin.wait()
    ctypes.memset(address + number, 1, 3 * PAGE)  # without the GIL

threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
mine.lose()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(threads))
"""
    assert lives(code) == ["8"]


def test_guard_is_one_of_a_forked_child_too() -> None:
    code = """
guard = Guard(mine.memory)
mine.lose()
child = os.fork()
mine.memory[0] = 1 if child else 2
if child == 0:
    os._exit(mine.memory[0])
print(mine.memory[0], os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert lives(code) == ["1", "2"]


GUARD = "guard = Guard(mine.memory)"
ENABLE = "faulthandler.enable()"
#: In which order handlers of SIGBUS are set.
ORDERS = {
    "alone": GUARD,
    "before": f"{ENABLE}; {GUARD}",
    "after": f"{GUARD}; {ENABLE}",
    "between": f"{GUARD}; {ENABLE}; del guard; {GUARD}",
}


@pytest.mark.parametrize("order", ORDERS)
def test_guard_works_with_faulthandler(order: str) -> None:
    assert lives(f"{ORDERS[order]}; mine.lose(); mine.memory[0] = 1; print(mine.memory[0])") == ["1"]


@pytest.mark.parametrize(
    "lose",
    [
        "other.lose(); other.memory[0] = 1",
        "signal.raise_signal(signal.SIGBUS)",
        "os.kill(os.getpid(), signal.SIGBUS)",
        "del guard; mine.lose(); mine.memory[0] = 1",
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_process_dies_of_other_errors(lose: str, order: str) -> None:
    ended = run(f"{ORDERS[order]}; {lose}")
    assert ended.returncode in DEATHS
    assert ended.stderr.count("Fatal Python error: Bus error") == (order != "alone")


def test_handler_of_the_program_is_called_for_other_errors() -> None:
    code = """
signal.signal(signal.SIGBUS, lambda *_: print("handled"))
guard = Guard(mine.memory)
signal.raise_signal(signal.SIGBUS)
mine.lose()
mine.memory[0] = 1
print(mine.memory[0])
del guard
signal.raise_signal(signal.SIGBUS)
"""
    assert lives(code) == ["handled", "1", "handled"]


def test_signal_that_was_ignored_is_ignored() -> None:
    code = """
signal.signal(signal.SIGBUS, signal.SIG_IGN)
guard = Guard(mine.memory)
os.kill(os.getpid(), signal.SIGBUS)
print("lives")
"""
    assert lives(code) == ["lives"]
    assert run(f"{code}other.lose(); other.memory[0] = 1").returncode in DEATHS


@pytest.mark.skipif(QUEUE_SIGNAL is None, reason="the number of a system call is not known")
@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_word_of_broken_memory_is_no_fault_of_a_store(before: str) -> None:
    """The store does not come again, so the handler does what the system would do."""
    ended = run(
        f"signal.signal(signal.SIGBUS, signal.{before}); guard = Guard(mine.memory); tell_of_broken_memory()"
    )
    assert ended.returncode in (DEATHS if before == "SIG_DFL" else {0}), ended.stderr


def test_handler_goes_with_the_last_guard() -> None:
    code = """
before = caught()
guards = [Guard(mine.memory), Guard(other.memory)]
guards.pop()
assert caught()
guards.pop()
assert caught() == before
guards = [Guard(mine.memory)]
print(caught())
"""
    assert lives(code) == ["1"]


def test_guard_needs_memory_that_can_be_written() -> None:
    code = """
for memory in (5, b"x"):
    try:
        Guard(memory)
    except (TypeError, BufferError):
        print("refused")
Guard.__new__(Guard)
print(caught())
"""
    assert lives(code)[:2] == ["refused", "refused"]
