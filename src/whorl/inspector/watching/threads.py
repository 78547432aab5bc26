"""Facts about a thread, by Linux: its times, its state, its system call, and the file of that call.

Each function returns None where the system does not tell.
"""

from __future__ import annotations

import os
import socket
import time

from whorl.inspector.tables.wording import address
from whorl.inspector.watching import looks
from whorl.inspector.watching.text import shown

LONGEST_PATH = 256

# The calls in which threads wait, by the numbers of each processor.
_CALLS = {
    "x86_64": (
        "0 read 1 write 2 open 3 close 4 stat 5 fstat 6 lstat 7 poll 9 mmap 11 munmap "
        "16 ioctl 17 pread64 18 pwrite64 19 readv 20 writev 23 select 26 msync 34 pause "
        "35 nanosleep 40 sendfile 42 connect 43 accept 44 sendto 45 recvfrom 46 sendmsg "
        "47 recvmsg 61 wait4 72 fcntl 73 flock 74 fsync 75 fdatasync 76 truncate "
        "77 ftruncate 82 rename 83 mkdir 84 rmdir 87 unlink 128 rt_sigtimedwait "
        "130 rt_sigsuspend 162 sync 202 futex 217 getdents64 230 clock_nanosleep "
        "232 epoll_wait 247 waitid 257 openat 262 newfstatat 263 unlinkat 270 pselect6 "
        "271 ppoll 275 splice 277 sync_file_range 281 epoll_pwait 285 fallocate 288 accept4 "
        "295 preadv 296 pwritev 306 syncfs 318 getrandom 326 copy_file_range 332 statx "
        "441 epoll_pwait2"
    ),
    "aarch64": (
        "22 epoll_pwait 25 fcntl 29 ioctl 32 flock 35 unlinkat 46 ftruncate 47 fallocate "
        "56 openat 57 close 61 getdents64 63 read 64 write 65 readv 66 writev 67 pread64 "
        "68 pwrite64 71 sendfile 72 pselect6 73 ppoll 76 splice 79 newfstatat 81 sync "
        "82 fsync 83 fdatasync 84 sync_file_range 95 waitid 98 futex 101 nanosleep "
        "115 clock_nanosleep 133 rt_sigsuspend 137 rt_sigtimedwait 202 accept 203 connect "
        "206 sendto 207 recvfrom 211 sendmsg 212 recvmsg 215 munmap 222 mmap 227 msync "
        "242 accept4 260 wait4 267 syncfs 278 getrandom 285 copy_file_range 291 statx "
        "441 epoll_pwait2"
    ),
}
_WITHOUT_FD = frozenset(
    (
        "clock_nanosleep futex getrandom lstat mkdir mmap msync munmap nanosleep open pause poll "
        "ppoll pselect6 rename rmdir rt_sigsuspend rt_sigtimedwait select stat sync truncate "
        "unlink wait4 waitid"
    ).split()
)
_PATH_ARGUMENT = {
    "open": 0, "openat": 1, "unlinkat": 1, "newfstatat": 1, "statx": 1, "stat": 0, "lstat": 0, "rename": 0,
    "mkdir": 0, "rmdir": 0, "unlink": 0, "truncate": 0,
}  # fmt: skip


def _names() -> dict[int, str]:
    words = _CALLS.get(os.uname().machine, "").split()
    return {int(number): name for number, name in zip(words[::2], words[1::2], strict=True)}


SYSTEM_CALLS = _names()


class Times:
    """The times of one thread. The file stays open: the native thread reads it, too.

    It is closed with the last reference: until then, a thread may be reading it.
    """

    fd: int = -1

    def __init__(self, thread: int) -> None:
        self.thread = thread
        try:
            self.fd = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def read(self) -> tuple[int | None, int | None]:
        """Return how long the thread has run, and how long it has waited for a processor, in nanoseconds."""
        if looks.HAS_NATIVE:
            run_ns, starved_ns = looks.times(self.thread, self.fd)
            return None if run_ns < 0 else run_ns, None if starved_ns < 0 else starved_ns
        try:
            fields = os.pread(self.fd, 100, 0).split() if self.fd >= 0 else []
        except OSError:  # The thread has ended.
            fields = []
        try:
            # The clock of another thread's processor time (man 3 clock_getcpuclockid; here for one thread).
            ran: int | None = time.clock_gettime_ns((~self.thread << 3) | 6)
        except OSError:
            ran = None
        if len(fields) != 3 or fields[2] == b"0":  # Without CONFIG_SCHED_INFO all are 0.
            return ran, None
        return int(fields[0]) if ran is None else ran, int(fields[1])


def is_runnable(thread: int) -> bool | None:
    """Return whether a thread has a processor, or waits for one."""
    state = _text_of(thread, "stat").rpartition(")")[2].split()
    return state[0] == "R" if state else None


def system_call_of(thread: int) -> tuple[str | None, str | None]:
    """Return the name and the file of the system call that a thread is in; "running": it is in none."""
    return describe_call(_text_of(thread, "syscall"))


def describe_call(text: str) -> tuple[str | None, str | None]:
    """Return the same for the text of `/proc/PID/task/TID/syscall`."""
    name, fields = name_of_call(text), text.split()
    if name is None or name == "running":
        return name, None
    arguments = [int(field, 16) for field in fields[1:7]]
    if name in _PATH_ARGUMENT:
        return name, _path_at(arguments[_PATH_ARGUMENT[name]])
    if name in _WITHOUT_FD or name.startswith("system call") or not arguments:
        return name, None
    return name, _file_of(arguments[0])


def name_of_call(text: str) -> str | None:
    """Return the name alone."""
    number = text.partition(" ")[0].strip()
    if number == "running":
        return "running"
    return SYSTEM_CALLS.get(int(number), f"system call {number}") if number.isdecimal() else None


def _file_of(fd: int) -> str | None:
    """Return the path of a descriptor's file; of a connection, its peer."""
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
        peer = _peer_of(fd) if path.startswith("socket:[") else None
    except OSError:
        return None
    return shown(path) if peer is None else f"a socket to {peer}"


def _peer_of(fd: int) -> str | None:
    """Return the peer of a connection; None if it has none with a name."""
    try:
        with socket.socket(fileno=os.dup(fd)) as twin:
            return address(twin.getpeername())
    except OSError:
        return None


def _path_at(address: int) -> str | None:
    """Return the path at an address of this process; None if it is not there any more."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.pread(memory, LONGEST_PATH, address)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(memory)
    path, end, _ = text.partition(b"\0")
    return shown(os.fsdecode(path)) if end and path else None


def _text_of(thread: int, name: str) -> str:
    if looks.HAS_NATIVE:
        return looks.file(thread, name)
    try:
        fd = os.open(f"/proc/self/task/{thread}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 512).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
