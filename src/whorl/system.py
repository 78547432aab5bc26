"""The system as this program sees it: processors, memory, addresses, a title.

Functions that Python has are not repeated here: `os.getloadavg`, `os.uname`, `socket.gethostname`, `pwd`,
`resource.getrusage`, `os.getpriority`, `tempfile.gettempdir`, `os.path.expanduser`.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

#: The places of /proc and /sys.
ROOT = "/"

# Version 1 of cgroups says "no limit" by the largest number of bytes in whole pages.
_UNLIMITED = 1 << 62


class CPU(NamedTuple):
    """One processor (libuv: ``uv_cpu_info_t``). Times are in nanoseconds, since the system's start."""

    model: str
    speed_hz: int  #: 0 if it is not known
    user_ns: int
    nice_ns: int
    system_ns: int
    idle_ns: int
    interrupts_ns: int


class InterfaceAddress(NamedTuple):
    """One address of a network interface (libuv: ``uv_interface_address_t``)."""

    name: str
    address: ipaddress.IPv4Interface | ipaddress.IPv6Interface  #: with its network
    mac: str  #: empty if it has none
    is_loopback: bool


# Processors.


def available_parallelism() -> int:
    """Return the number of threads that can run at the same time, at least 1 (``uv_available_parallelism``).

    It is the number of processors that this thread may use, or fewer if a cgroup limits their time.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _processor_quota()
    return max(1, usable if quota is None else min(usable, int(quota)))


def cpu_info() -> list[CPU]:
    """Return the processors that are switched on (``uv_cpu_info``)."""
    models = re.findall(r"^(?:model name|cpu model)\s*: (.*)$", _read("proc/cpuinfo"), re.MULTILINE)
    speeds = re.findall(r"^cpu MHz\s*: ([\d.]+)$", _read("proc/cpuinfo"), re.MULTILINE)
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    found = []
    for number, line in enumerate(re.findall(r"^cpu\d+ (.*)$", _read("proc/stat"), re.MULTILINE)):
        user, nice, system, idle, _, interrupts, *_ = (int(ticks) * tick for ticks in line.split())
        model = models[number] if number < len(models) else "unknown"
        speed = int(float(speeds[number]) * 1e6) if number < len(speeds) else 0
        found.append(CPU(model, speed, user, nice, system, idle, interrupts))
    return found


def _processor_quota() -> float | None:
    """Return the number of processors that equals the process's allowed processor time; None for no limit."""
    quotas = []
    for text in _settings("", "cpu.max"):
        quota, period = text.split()
        if quota != "max":
            quotas.append(int(quota) / int(period))
    limits = zip(_settings("cpu", "cpu.cfs_quota_us"), _settings("cpu", "cpu.cfs_period_us"), strict=False)
    quotas += [int(quota) / int(period) for quota, period in limits if int(quota) > 0]
    return min(quotas, default=None)


# Memory, in bytes.


def total_memory() -> int:
    """Return the size of the machine's memory (``uv_get_total_memory``)."""
    return _memory("MemTotal")


def free_memory() -> int:
    """Return the memory that could be used without swapping (``uv_get_free_memory``)."""
    return _memory("MemAvailable")


def constrained_memory() -> int | None:
    """Return the most memory that the process's cgroups allow, or None (``uv_get_constrained_memory``)."""
    limits = [
        int(text) for name in ("memory.max", "memory.high") for text in _settings("", name) if text != "max"
    ]
    limits += [
        int(text)
        for name in ("memory.limit_in_bytes", "memory.soft_limit_in_bytes")
        for text in _settings("memory", name)
    ]
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def available_memory() -> int:
    """Return the memory that this process may still take, if known (``uv_get_available_memory``)."""
    limit = constrained_memory()
    if limit is None:
        return free_memory()
    used = [int(text) for text in _settings("", "memory.current")[:1]]
    used += [int(text) for text in _settings("memory", "memory.usage_in_bytes")[:1]]
    return max(0, min(limit - used[0], free_memory())) if used else min(limit, free_memory())


def resident_memory() -> int:
    """Return the memory that this process occupies now (``uv_resident_set_memory``)."""
    return int(_read("proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _memory(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _read("proc/meminfo"), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/meminfo has no {name}")
    return int(found[1]) * 1024


# Time and addresses.


def uptime() -> float:
    """Return the seconds since the system's start, time asleep included (``uv_uptime``)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def interface_addresses() -> list[InterfaceAddress]:
    """Return the addresses of the network interfaces that are up (``uv_interface_addresses``).

    Raises ImportError, which says how to install it, without psutil.
    """
    psutil = _library("psutil", "system")
    states = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        if name not in states or not states[name].isup:
            continue
        mac = next((entry.address for entry in addresses if entry.family == psutil.AF_LINK), "")
        for entry in addresses:
            if entry.family != psutil.AF_LINK:
                address = _interface(entry.address, entry.netmask)
                found.append(InterfaceAddress(name, address, mac, address.is_loopback))
    return found


def _interface(address: str, netmask: str | None) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """Return an address with its network."""
    host = ipaddress.ip_address(address)
    prefix: int = host.max_prefixlen
    if netmask is not None:
        prefix = f"{int(ipaddress.ip_address(netmask)):b}".count("1")
    return ipaddress.ip_interface(f"{address}/{prefix}")


# The title of the process.


def process_title() -> str:
    """Return the title that `ps` shows of this process (``uv_get_process_title``).

    Raises ImportError without setproctitle.
    """
    title: str = _library("setproctitle", "system").getproctitle()
    return title


def set_process_title(title: str) -> None:
    """Let `ps` show another title (``uv_set_process_title``). Raises ImportError without setproctitle."""
    _library("setproctitle", "system").setproctitle(title)


def _library(name: str, extra: str) -> Any:
    """Return an optional library."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs {name}: pip install 'whorl-loop[{extra}]'", name=name) from error


# The files of the system.


def _read(path: str) -> str:
    return (Path(ROOT) / path).read_text(encoding="utf-8", errors="replace")


def _settings(controller: str, name: str) -> list[str]:
    """Return the content of a file of this process's cgroups, beginning with its direct one.

    The cgroups are those of version 2 if `controller` is empty.
    """
    found = []
    for folder in _cgroups(controller):
        try:
            text = (folder / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text:
            found.append(text)
    return found


def _cgroups(controller: str) -> list[Path]:
    """Return the folders of this process's cgroups, from its direct one up to the root."""
    try:
        lines = _read("proc/self/cgroup").split("\n")
    except OSError:
        return []
    for line in filter(None, lines):
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            top = Path(ROOT) / "sys/fs/cgroup" / controller
            own = top / path.lstrip("/")
            # In a container the path may be that of the host, which is not visible.
            return [own, *[folder for folder in own.parents if folder == top or top in folder.parents]]
    return []
