"""The arguments of `start`, and the same as the text of an environment variable."""

from __future__ import annotations

import math
import os
import signal as signals
from dataclasses import dataclass
from typing import Any

LONGEST_THRESHOLD = 3600.0  # seconds
DEFAULT_THRESHOLD = 0.1
OFF = ("", "0", "no", "off", "false")
ON = ("1", "yes", "on", "true")
UNITS = (("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("", 1.0))
DEFAULT_SIGNAL: Any = object()  # the signal of `WHORL_INSPECT_SIGNAL`, or else SIGRTMAX-4


@dataclass(frozen=True)
class Settings:
    """The arguments of `start`. Two calls with equal settings ask for the same."""

    threshold: float = DEFAULT_THRESHOLD
    """The seconds that a callback may take."""
    signal: int | None = None
    """The signal that asks a thread for its stack while it holds the interpreter's lock; None: send none."""
    socket: bool = True
    """Whether other processes of the user are answered."""


def checked(threshold: float, signal: int | None, socket: bool = True) -> Settings:
    """Return the settings for these arguments. Raises TypeError and ValueError."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise TypeError(f"threshold must be a number of seconds, not {threshold!r}")
    if not 0 < threshold <= LONGEST_THRESHOLD:  # NaN is in no range
        raise ValueError(f"threshold must be above 0 and at most {LONGEST_THRESHOLD:g} seconds: {threshold}")
    if signal is DEFAULT_SIGNAL:
        signal = _signal_number(os.environ.get("WHORL_INSPECT_SIGNAL", ""))
    elif signal is not None:
        signal = int(signal)
        if signal not in signals.valid_signals():
            raise ValueError(f"signal must be the number of a signal or None: {signal}")
    return Settings(float(threshold), signal, bool(socket))


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
        arguments[name.strip()] = parse(value.strip())
    return arguments


def _signal_number(text: str) -> int | None:
    """Return the number of a signal that is given by its number or name; "none" is None."""
    text = text.strip()
    if not text:
        return int(signals.SIGRTMAX) - 4
    if text.lower() in ("none", *OFF):
        return None
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    named: Any = getattr(signals, name, None)
    if not isinstance(named, signals.Signals):
        named = int(text) if text.isdecimal() else 0
    if named not in signals.valid_signals():
        raise ValueError(f"WHORL_INSPECT_SIGNAL is the number or the name of a signal, not {text!r}")
    return int(named)


def _switch(text: str) -> bool:
    """Return whether a text says yes."""
    if text.lower() in (*ON, *OFF):
        return text.lower() in ON
    raise ValueError(f"socket is 1 or 0, not {text!r}")


#: The settings that `WHORL_INSPECT` may name, and what turns their text into the argument of `start`.
PARSERS: dict[str, Any] = {"threshold": duration, "signal": _signal_number, "socket": _switch}
