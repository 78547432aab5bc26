"""The resources of the system: the real one, and systems that are folders of the test."""

from __future__ import annotations

import ipaddress
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.children import bare_environment
from whorl import system

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an empty /proc and /sys."""
    monkeypatch.setattr(system, "ROOT", str(tmp_path))
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


# Control groups.


def test_version_2_limits_are_the_smallest_on_the_way_up(root: Path) -> None:
    put(root, "proc/self/cgroup", "0::/outer/inner\n")
    put(root, "sys/fs/cgroup/outer/inner/memory.max", "max\n")
    assert system.constrained_memory() is None
    put(root, "sys/fs/cgroup/outer/memory.max", f"{3 * GIB}\n")
    assert system.constrained_memory() == 3 * GIB
    put(root, "sys/fs/cgroup/outer/inner/memory.high", f"{2 * GIB}\n")
    assert system.constrained_memory() == 2 * GIB
    put(root, "sys/fs/cgroup/outer/inner/memory.current", f"{GIB}\n")
    put(root, "proc/meminfo", f"MemTotal: {8 * GIB // 1024} kB\nMemAvailable:   {4 * GIB // 1024} kB\n")
    assert system.available_memory() == GIB
    put(root, "sys/fs/cgroup/outer/inner/memory.current", f"{5 * GIB}\n")
    assert system.available_memory() == 0
    assert (system.total_memory(), system.free_memory()) == (8 * GIB, 4 * GIB)


def test_name_of_a_group_may_have_any_character(root: Path) -> None:
    put(root, "proc/self/cgroup", "1:cpu:/\u2028a\n0::/a\x1cb\u2028c\n")
    put(root, "sys/fs/cgroup/a\x1cb\u2028c/memory.max", f"{GIB}\n")
    assert system.constrained_memory() == GIB


def test_version_1_says_no_limit_by_a_very_large_number(root: Path) -> None:
    put(root, "proc/self/cgroup", "4:memory:/here\n2:cpu,cpuacct:/\n0::/\n")
    put(root, "proc/meminfo", "MemAvailable: 1000 kB\n")
    put(root, "sys/fs/cgroup/memory/here/memory.limit_in_bytes", "9223372036854771712\n")
    assert system.constrained_memory() is None
    assert system.available_memory() == 1000 * 1024
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{GIB}\n")
    assert system.constrained_memory() == GIB


def test_a_quota_of_time_limits_what_can_be_done_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert system.available_parallelism() == 16
    put(root, "proc/self/cgroup", "0::/\n")
    for text, threads in (
        ("max 100000", 16),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("9900000 100000", 16),
    ):
        put(root, "sys/fs/cgroup/cpu.max", text)
        assert system.available_parallelism() == threads
    put(root, "proc/self/cgroup", "1:cpu:/\n")
    for quota, threads in (("-1", 16), ("300000", 3)):
        put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota)
        put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
        assert system.available_parallelism() == threads


def test_a_processor_without_a_name_has_one(root: Path) -> None:
    put(root, "proc/cpuinfo", "processor: 0\nmodel name\t: Fast\ncpu MHz\t\t: 2000.5\n\nprocessor: 1\n")
    put(root, "proc/stat", "cpu  9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8\ncpu1 1 2 3 4 5 6 7\nintr 0\n")
    first, second = system.cpu_info()
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert first == ("Fast", 2_000_500_000, tick, 2 * tick, 3 * tick, 4 * tick, 6 * tick)
    assert (second.model, second.speed_hz) == ("unknown", 0)


# The real system.


def test_the_real_system_answers() -> None:
    assert 1 <= system.available_parallelism() <= (os.cpu_count() or 1)
    assert 0 < system.free_memory() <= system.total_memory()
    assert 0 <= system.available_memory() <= system.total_memory()
    limit = system.constrained_memory()
    assert limit is None or limit > 0
    assert len(system.cpu_info()) == os.cpu_count()
    assert all(cpu.idle_ns >= 0 for cpu in system.cpu_info())
    assert system.uptime() >= time.monotonic() * 0.99


def test_more_memory_is_seen() -> None:
    before = system.resident_memory()
    with mmap.mmap(-1, 64 << 20) as block:  # what `bytearray` takes may have been this process's before
        for page in range(0, len(block), 4096):
            block[page] = 1
        assert system.resident_memory() - before > 48 << 20


def test_the_loopback_has_its_address() -> None:
    pytest.importorskip("psutil")
    found = [entry for entry in system.interface_addresses() if entry.is_loopback]
    assert ipaddress.ip_interface("127.0.0.1/8") in [entry.address for entry in found]
    assert not any(entry.mac.strip("0:") for entry in found)


TITLE = """
from whorl import system
print(system.process_title() != "")
system.set_process_title("a title of ours")
print(system.process_title())
print(open("/proc/self/cmdline").read().rstrip("\\0"))
"""


def test_a_process_has_a_title() -> None:
    pytest.importorskip("setproctitle")
    answer = subprocess.run(
        [sys.executable, "-c", TITLE],
        env=bare_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert answer.stdout.splitlines() == ["True", "a title of ours", "a title of ours"]


@pytest.mark.parametrize(
    ("call", "library"), [(system.interface_addresses, "psutil"), (system.process_title, "setproctitle")]
)
def test_without_the_library_the_error_says_what_to_install(
    call: object, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=r"pip install 'whorl-loop\[system\]'"):
        call()  # type: ignore[operator]
