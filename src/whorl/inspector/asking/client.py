"""Asking an inspected process: finding its socket, one request and its answer.

An answer is lines of JSON. The last one has `ok` or `error`; those before it have rows of a table.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from whorl.inspector.asking import directory, places
from whorl.inspector.asking.received import Row, Unfit, row_of, text_of

#: The seconds in which each line of an answer comes, and the whole.
PATIENCE = 2.0
LONGEST_TIME = 120.0
#: The most bytes of a line, of which Python makes objects, and of the whole. A task has some 400 bytes, and
#: takes 1,000 in memory; very small rows take seven times their bytes.
LONGEST_LINE = 8 << 20
LONGEST_ANSWER = 128 << 20
MOST_LOOPS = 10_000

_STATES = {
    "T": "It is stopped (SIGSTOP, or Ctrl-Z).",
    "t": "A debugger has stopped it.",
    "D": "It is in a system call that cannot be interrupted.",
    "Z": "It has ended, and its parent has not noticed it yet.",
    "R": "It is running: C code may be holding the interpreter's lock.",
    "S": "It sleeps: C code may be holding the interpreter's lock.",
}


class Failed(Exception):
    """The process was not asked, or did not answer; `code` is the exit code of a command that asked."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class NotInspected(Failed):
    """There is no such process, or nothing watches it."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 3)


class NotOurs(Failed):
    """The process is another user's."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} is another user's", 4)


class Unusable(Failed):
    """The answer is none that an inspector gives."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} gave an answer that is none of the inspector's", 1)


class TooLong(Failed):
    """The answer is longer than what is read."""

    def __init__(self, pid: int, do: str) -> None:
        hint = f"; `whorl tasks {pid} --summary` counts its tasks" if do == "tasks" else ""
        text = f"process {pid} sent more than {LONGEST_ANSWER >> 20} MiB, so nothing is shown"
        super().__init__(text + hint, 1)


class Refusal(Failed):
    """The process refused to answer."""

    def __init__(self, pid: int, why: str) -> None:
        super().__init__(f"process {pid} refused: {why}", 1)


class NoAnswer(Failed):
    """The process does not answer."""

    def __init__(self, pid: int) -> None:
        state = _STATES.get(directory.state_of(pid), "It has ended.")
        super().__init__(f"process {pid} did not answer within {PATIENCE:g} s. {state}", 5)


def ask(pid: int, do: str, take: Callable[[dict[str, Any]], None] | None = None, **details: Any) -> Any:
    """Return the answer of a process to one request; `take` is called with each line before it.

    The process may be another user's, so anything may be in it. Raises Failed.
    """
    with _connected(pid) as connection:
        _send(connection, json.dumps({"v": 1, "id": 1, "do": do, **details}).encode() + b"\n")
        try:
            for line in _lines(connection, pid, do):
                answer = json.loads(line)
                if type(answer) is not dict:
                    raise Unfit
                if "error" in answer:
                    raise Refusal(pid, text_of(answer["error"]))
                if "ok" in answer:
                    return answer["ok"]
                if take is not None:
                    take(answer)
        except (ValueError, RecursionError):
            raise Unusable(pid) from None
    raise Failed(f"process {pid} ended before its answer was whole", 5)


def rows(
    pid: int, do: str, kind: type[Row], told: Callable[[int], None] = lambda count: None, **details: Any
) -> list[list[Row]]:
    """Return a table of a process, for each of its loops; `told` is called with how many rows have come.

    Raises Failed.
    """
    loops: list[list[Row]] = []
    counted = 0

    def take(line: dict[str, Any]) -> None:
        nonlocal counted
        place, found = line.get("loop"), line.get("rows")
        if type(place) is not int or not 0 <= place < MOST_LOOPS or type(found) is not list:
            raise Unfit
        while place >= len(loops):
            loops.append([])
        loops[place] += [row_of(kind, row) for row in found]
        counted += len(found)
        told(counted)

    count = ask(pid, do, take, **details)
    if type(count) is not int or not len(loops) <= count < MOST_LOOPS:
        raise Unusable(pid)
    return loops + [[] for _ in range(count - len(loops))]


def _send(connection: socket.socket, request: bytes) -> None:
    try:
        connection.sendall(request)
    except OSError:
        pass  # It has closed the connection. The reason may be there to be read.


def _lines(connection: socket.socket, pid: int, do: str) -> Iterator[bytes | bytearray]:
    """Yield the lines of an answer. Raises NoAnswer, Unfit if a line is too long, and TooLong."""
    received, total = bytearray(), 0
    began = time.monotonic()
    patience = began + PATIENCE
    while True:
        now = time.monotonic()
        if now >= began + LONGEST_TIME:
            raise Failed(f"process {pid} did not end its answer within {LONGEST_TIME:g} s", 5)
        try:
            connection.settimeout(max(0.001, patience - now))
            data = connection.recv(1 << 18)
            if not data:
                return
        except TimeoutError:
            raise NoAnswer(pid) from None
        except OSError:
            return
        if time.monotonic() >= patience and b"\n" not in data:
            raise NoAnswer(pid)
        total += len(data)
        *whole, rest = (received + data).split(b"\n") if b"\n" in data else (received + data,)
        if total > LONGEST_ANSWER:
            raise TooLong(pid, do)
        if len(rest) > LONGEST_LINE:
            raise Unfit
        for line in whole:
            yield line
            patience = time.monotonic() + PATIENCE
        received = rest


def user_of(pid: int) -> int:
    """Return the user of a process that this one may ask. Raises NotInspected and NotOurs."""
    try:
        user = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        raise NotInspected(f"there is no process {pid}") from None
    if directory.state_of(pid) in ("Z", "X"):
        raise NotInspected(f"process {pid} has ended, and its parent has not noticed it yet")
    if os.geteuid() not in (user, 0):
        raise NotOurs(pid)
    return user


def _connected(pid: int) -> socket.socket:
    """Return a connection to a process's socket."""
    user = user_of(pid)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(PATIENCE)
        place = _found(connection, pid, user)
        if place is None:
            raise NotInspected(
                f"process {pid} is not inspected: start it with WHORL_INSPECT=1 or `whorl run --inspect`"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _found(connection: socket.socket, pid: int, user: int) -> str | None:
    """Connect to the first socket of a process that answers; return its path, or None."""
    name = f"{places.own_number(pid)}-{directory.start_time(pid)}.sock"
    for folder in places.folders(pid, user):
        try:
            place = places.opened(folder, user)
        except PermissionError:
            if folder.startswith("/proc/"):
                continue  # Other users' roots are closed to most.
            raise NotOurs(pid) from None
        except OSError:
            continue
        try:
            _connect(connection, f"/proc/self/fd/{place}/{name}")
            if _peer(connection) in (pid, 0):
                return os.path.join(folder, name)
        except PermissionError:
            raise NotOurs(pid) from None
        except (TimeoutError, BlockingIOError):  # Nobody accepts.
            raise NoAnswer(pid) from None
        except OSError:
            continue
        finally:
            os.close(place)
    return None


def _connect(connection: socket.socket, path: str) -> None:
    """Connect; wait a while for a place in the queue, which others may fill."""
    began = time.monotonic()
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:
            if time.monotonic() - began > PATIENCE:
                raise
            time.sleep(0.01)


def _peer(connection: socket.socket) -> int:
    """Return the number of the process that listens; 0 if it cannot be seen from here."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])
