"""The arguments of `start`, and the same as the text of an environment variable."""

from __future__ import annotations

import math
import os
import signal as signals
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from whorl.core.recording import layout

LONGEST_THRESHOLD = 3600.0  # seconds
DEFAULT_THRESHOLD = 0.1
OFF = ("", "0", "no", "off", "false")
ON = ("1", "yes", "on", "true")
DEFAULT_RING = 8 << 20
DEFAULT_KEEP = 8
MOST_KEPT = 1000
DUMPS_ON = ("stall", "error", "exit")
SIZES = (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1), ("", 1))
UNITS = (("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("", 1.0))


@dataclass(frozen=True)
class Settings:
    """The arguments of `start`. Two calls with equal settings ask for the same."""

    threshold: float = DEFAULT_THRESHOLD
    """The seconds that a callback may take."""
    socket: bool = True
    """Whether other processes of the user are answered."""
    recording: bool | str = True
    """Whether loops are recorded; a text names the file, which stays."""
    ring: int = DEFAULT_RING
    """The bytes of the ring of events."""
    record_all: bool = False
    """Whether short callbacks and steps are recorded too."""
    dump_on: frozenset[str] = frozenset()
    """When a copy of the recording is written: "stall", "error", "exit", names of signals."""
    keep: int = DEFAULT_KEEP
    """How many of these copies are kept."""


def checked(
    threshold: float = DEFAULT_THRESHOLD,
    socket: bool = True,
    recording: bool | str | os.PathLike[str] = True,
    ring: int = DEFAULT_RING,
    record_all: bool = False,
    dump_on: Iterable[str] = (),
    keep: int = DEFAULT_KEEP,
) -> Settings:
    """Return the settings for these arguments. Raises TypeError and ValueError."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise TypeError(f"threshold must be a number of seconds, not {threshold!r}")
    if not 0 < threshold <= LONGEST_THRESHOLD:  # NaN is in no range
        raise ValueError(f"threshold must be above 0 and at most {LONGEST_THRESHOLD:g} seconds: {threshold}")
    _check_number("ring", ring, layout.LEAST_RING, layout.MOST_RING, "bytes")
    _check_number("keep", keep, 1, MOST_KEPT, "files")
    if not isinstance(recording, bool):
        recording = os.fspath(recording)
        if not isinstance(recording, str) or not recording or "\0" in recording:
            raise ValueError(f"recording must be True, False or the path of a file: {recording!r}")
    dumps = _checked_dumps(dump_on)
    return Settings(float(threshold), bool(socket), recording, ring, bool(record_all), dumps, keep)


def _check_number(name: str, number: Any, least: int, most: int, unit: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be a number of {unit}, not {number!r}")
    if not least <= number <= most:
        raise ValueError(f"{name} must be at least {least} and at most {most} {unit}: {number}")


def _checked_dumps(dump_on: Iterable[str]) -> frozenset[str]:
    names = frozenset((dump_on,) if isinstance(dump_on, str) else dump_on)
    for name in names:
        if name not in DUMPS_ON and signal_named(name) is None:
            raise ValueError(f"dump_on has {', '.join(DUMPS_ON)} and names of signals, not {name!r}")
    return names


def signal_named(name: object) -> int | None:
    """Return the number of the signal with a name such as SIGUSR2; None if there is none."""
    named: Any = getattr(signals, name, None) if isinstance(name, str) else None
    return int(named) if isinstance(named, signals.Signals) else None


def duration(text: str) -> float:
    """Return the seconds of `100ms`, `1s` or `2.5`. Raises ValueError that names these forms."""
    for unit, factor in UNITS:
        if text.endswith(unit):
            try:
                seconds = float(text[: len(text) - len(unit)]) * factor
            except ValueError:
                break
            if math.isfinite(seconds):
                return seconds
            break
    raise ValueError(f"a duration is written 100ms, 1s or 2.5, not {text!r}")


def from_environment(text: str) -> dict[str, Any] | None:
    """Return the arguments of `start` that `WHORL_INSPECT` asks for; None: it asks for nothing.

    The text is `1`, or settings such as `threshold=50ms`. Raises ValueError.
    """
    text = text.strip()
    if text.lower() in OFF:
        return None
    if text.lower() in ON:
        return {}
    arguments: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        parse = PARSERS.get(name.strip())
        if not equals or parse is None:
            known = ", ".join(f"{known}=…" for known in PARSERS)
            raise ValueError(f"WHORL_INSPECT is 1 or settings of the form {known}; {part!r} is neither")
        arguments[ARGUMENTS.get(name.strip(), name.strip())] = parse(value.strip())
    return arguments


def size(text: str) -> int:
    """Return the bytes of `64KiB`, `16MiB` or `8388608`. Raises ValueError that names these forms."""
    for unit, factor in SIZES:
        number = text[: len(text) - len(unit)].strip()
        if text.endswith(unit) and number.isascii() and number.isdecimal():
            return int(number) * factor
    raise ValueError(f"a size is written 64KiB, 16MiB or 8388608, not {text!r}")


def _switch(text: str) -> bool:
    """Return whether a text says yes."""
    if text.lower() in (*ON, *OFF):
        return text.lower() in ON
    raise ValueError(f"a switch is 1 or 0, not {text!r}")


def _recording(text: str) -> bool | str:
    """Return whether to record, or the path of the file."""
    return text.lower() in ON if text.lower() in (*ON, *OFF) else text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split("+"))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"keep is a number of files, not {text!r}")
    return int(text)


#: The settings that `WHORL_INSPECT` may name, and what turns their text into the argument of `start`.
PARSERS: dict[str, Any] = {
    "threshold": duration,
    "socket": _switch,
    "recording": _recording,
    "ring": size,
    "all": _switch,
    "dump_on": _names,
    "keep": _count,
}
#: Where the argument has another name.
ARGUMENTS = {"all": "record_all"}
