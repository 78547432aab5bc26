"""Asking an inspected process: finding its socket, one request and one answer."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any

from whorl.inspector.asking import directory, places

PATIENCE = 2.0
LONGEST_ANSWER = 256 << 20

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


class NoAnswer(Failed):
    """The process does not answer."""

    def __init__(self, pid: int) -> None:
        state = _STATES.get(directory.state_of(pid), "It has ended.")
        super().__init__(f"process {pid} did not answer within {PATIENCE:g} s. {state}", 5)


def ask(pid: int, do: str, **details: Any) -> Any:
    """Return the answer of a process to one request. Raises Failed."""
    connection = _connected(pid)
    with connection:
        try:
            connection.sendall(json.dumps({"v": 1, "id": 1, "do": do, **details}).encode() + b"\n")
            received = bytearray()
            while not received.endswith(b"\n"):
                data = connection.recv(1 << 20)
                if not data or len(received) > LONGEST_ANSWER:
                    raise NoAnswer(pid)
                received += data
        except OSError:
            raise NoAnswer(pid) from None
    answer = json.loads(received)
    if "ok" not in answer:
        raise Failed(f"process {pid} refused: {answer.get('error')}", 1)
    return answer["ok"]


def user_of(pid: int) -> int:
    """Return the user of a process that this one may ask. Raises NotInspected and NotOurs."""
    try:
        user = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        raise NotInspected(f"there is no process {pid}") from None
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
