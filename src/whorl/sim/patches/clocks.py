"""The clocks of a world: `time` and `datetime` show its virtual time."""

from __future__ import annotations

import datetime
import time
from typing import Any

from whorl.sim.patches.current import Replacement, host

_gmtime, _localtime, _strftime = time.gmtime, time.localtime, time.strftime
_RealDatetime = datetime.datetime


def _monotonic_ns() -> int:
    return host().look()


def _monotonic() -> float:
    return _monotonic_ns() / 1e9


def _time_ns() -> int:
    running = host()
    running.look()
    return running.real_time()


def _time() -> float:
    return _time_ns() / 1e9


def _sleep(seconds: float) -> None:
    host().sleep(seconds)


def _gm(seconds: float | None = None) -> time.struct_time:
    return _gmtime(_time() if seconds is None else seconds)


def _local(seconds: float | None = None) -> time.struct_time:
    """Return the local time: that of UTC in every world."""
    return _gmtime(_time() if seconds is None else seconds)


def _text(form: str, moment: Any = None) -> str:
    return _strftime(form, _local() if moment is None else moment)


class _DatetimeType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RealDatetime)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _RealDatetime)


class SimDatetime(_RealDatetime, metaclass=_DatetimeType):
    """`datetime.datetime` whose present is the world's. It makes plain datetimes."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return _RealDatetime(*args, **options)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return the world's time."""
        present = _RealDatetime.fromtimestamp(_time(), datetime.UTC if tz is None else tz)
        return present.replace(tzinfo=None) if tz is None else present

    @classmethod
    def utcnow(cls) -> Any:
        """Return the world's time, in UTC."""
        return cls.now()

    @classmethod
    def today(cls) -> Any:
        """Return the world's time."""
        return cls.now()


for _name in ("fromtimestamp", "fromisoformat", "strptime", "combine", "fromordinal", "utcfromtimestamp",
              "fromisocalendar"):  # fmt: skip
    setattr(SimDatetime, _name, getattr(_RealDatetime, _name))

CLOCKS: list[Replacement] = [
    (time, "monotonic", _monotonic),
    (time, "monotonic_ns", _monotonic_ns),
    (time, "perf_counter", _monotonic),
    (time, "perf_counter_ns", _monotonic_ns),
    (time, "time", _time),
    (time, "time_ns", _time_ns),
    (time, "sleep", _sleep),
    (time, "gmtime", _gm),
    (time, "localtime", _local),
    (time, "strftime", _text),
]
