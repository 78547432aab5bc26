"""The socket by which another process asks an inspected one: tasks, handles, stacks, stalls.

A thread of the inspector's answers, never a loop, so it answers while a loop is stuck. It reads tables and
runs nothing that it is sent: a request is the name of a table. Only processes of the same user, and those of
root, are answered.

A table is sent while it is made, some rows at a time. Between them the loop runs, others are answered, and
the thread notices that a client has gone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import platform
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from whorl.inspector.asking import directory
from whorl.inspector.recordings.doing import plain
from whorl.inspector.tables import handles, tasks
from whorl.inspector.tables.wording import shown, type_name
from whorl.inspector.watching.own_thread import NotKnown, read
from whorl.inspector.watching.text import warn

VERSION = 1
LONGEST_REQUEST = 64 * 1024
MOST_CLIENTS = 8
#: The seconds that a request may take to arrive, and each part of its answer to be taken.
REQUEST_TIME = 1.0
#: The seconds after which a client that takes its answer slowly is left.
ANSWER_TIME = 120.0
#: The seconds that a client may stay silent between two requests.
IDLE_TIME = 10.0
#: How many rows of a table are made in one go: a fraction of a millisecond.
ROWS = 8

Request = dict[str, Any]
#: It yields the lines before the last one, and returns what that one has.
Answer = Generator[Request, None, Any]


class Answers:
    """The listening socket of an inspector, and the thread that answers. `source` is the inspector."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._clients: dict[int, Client] = {}
        self._name = ""
        self._directory = ""
        self._pid = 0
        self._is_stopping = False
        #: Returns why the recording was refused the directory, which was logged then; empty if it was not.
        self.refusal: Callable[[], str] = str

    @property
    def path(self) -> str | None:
        """The path of the socket; None if there is none."""
        name = self._name
        return None if self._listener is None or not name else os.path.join(self._directory, name)

    def start(self) -> None:
        """Begin to answer. If the directory is refused, log one warning and answer nobody."""
        if self._listener is not None:
            return
        try:
            self._listen()
            self._is_stopping = False
            self._thread = threading.Thread(target=self._run, name="whorl-inspector", daemon=True)
            self._thread.start()
            self._end_with_child()
        except (OSError, RuntimeError) as error:
            self._close_all()
            if str(error) != self.refusal():
                warn(f"Nobody can ask about this process: {error}")

    def _end_with_child(self) -> None:
        """Let a child of `multiprocessing`, which ends without `atexit`, remove its file."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.stop, exitpriority=0)

    def _listen(self) -> None:
        self._pid = os.getpid()
        self._directory = directory.path_for(dict(os.environ), os.geteuid())
        self._name = directory.name_of(self._pid)
        place = directory.opened(self._directory)
        try:
            directory.sweep(place)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                with contextlib.suppress(FileNotFoundError):  # left by a program that this one replaced
                    os.unlink(self._name, dir_fd=place)
                # By the descriptor: paths of sockets are short, and this directory is the one checked.
                listener.bind(f"/proc/self/fd/{place}/{self._name}")
                os.chmod(self._name, 0o600, dir_fd=place)
                listener.listen(MOST_CLIENTS)
            except BaseException:
                listener.close()
                raise
            self._listener = listener
        finally:
            os.close(place)

    def stop(self) -> None:
        """Answer no more; no thread, descriptor or file is left.

        A thread that waits for a row of a table ends when it has that.
        """
        thread, self._thread = self._thread, None
        self._is_stopping = True
        listener = self._listener
        if listener is not None and thread is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
            if thread is not threading.current_thread():
                thread.join(REQUEST_TIME)
                if thread.is_alive():  # It may use its descriptors, so it closes them itself.
                    self._remove_file()
                    return
        self._close_all()

    def fork_ended(self) -> None:
        """Give up what a forked child has of its parent: the child has a thread and a file of its own."""
        self._thread = None
        self._close_all()

    def _close_all(self) -> None:
        for client in list(self._clients.values()):
            client.close()
        self._clients.clear()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            self._remove_file()

    def _remove_file(self) -> None:
        """Remove the file, once: another inspector of the process may have one of the same name by then."""
        name, self._name = self._name, ""
        if name and self._pid == os.getpid():  # else it is the parent's
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._directory, name))

    # In the thread.

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                try:
                    self._serve_once()
                except MemoryError:  # Clients wait until there is some again.
                    time.sleep(REQUEST_TIME / 10)
        except Exception:
            if not self._is_stopping:
                logging.getLogger("whorl.inspector").exception("The inspector answers no more")
        finally:
            self._close_all()

    def _serve_once(self) -> None:
        listener = self._listener
        if listener is None:
            return
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        for fd, client in self._clients.items():
            poller.register(fd, client.interest)
        making = [client for client in self._clients.values() if client.is_making]
        found = dict(poller.poll(0 if making else self._patience()))
        for fd, events in found.items():
            if self._is_stopping:
                return
            if fd in self._clients:
                self._clients[fd].step(events)
        for client in making:
            if not client.is_over and not self._is_stopping:
                client.make()
                time.sleep(tasks.PAUSE)  # The loop runs now.
        now = time.monotonic()
        for fd, client in list(self._clients.items()):
            if client.is_over or now >= client.deadline:
                client.close()
                del self._clients[fd]
        if listener.fileno() in found:  # last: those that have left make room
            self._accept(listener)

    def _patience(self) -> float | None:
        """Return how many milliseconds nothing has to be done, None for any time."""
        if not self._clients:
            return None
        first = min(client.deadline for client in self._clients.values())
        return max(0.0, first - time.monotonic()) * 1000 + 1

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if not is_allowed(connection):
            connection.close()
        elif len(self._clients) >= MOST_CLIENTS:
            with contextlib.suppress(OSError):
                connection.send(_line({"id": None, "error": f"{MOST_CLIENTS} others are asking it now"}))
            connection.close()
        else:
            self._clients[connection.fileno()] = Client(connection, self._answer)

    def _answer(self, line: bytes) -> tuple[Iterator[Request], bool]:
        """Return the lines of the answer to a line, and whether that was a request."""
        try:
            number, what, request = _request(line)
        except (ValueError, RecursionError) as error:
            return iter([{"id": None, "error": shown(str(error))}]), False
        return self._lines_of(number, what, request), True

    def _lines_of(self, number: int | None, what: str, request: Request) -> Iterator[Request]:
        try:
            result = yield from TABLES[what](self._source, request)
        except NotKnown as error:
            yield {"id": number, "error": f"{what}: {error}"}
        except Exception as error:  # Its text is the program's.
            yield {"id": number, "error": f"{what} failed: {type_name(error)}"}
        else:
            yield {"id": number, "ok": result}


def _request(line: bytes) -> tuple[int | None, str, Request]:
    """Return the number of a request, the table it asks for, and the request. Raises ValueError."""
    request = json.loads(line)
    if type(request) is not dict or request.get("v", VERSION) != VERSION:
        raise ValueError(f"a request is an object of version {VERSION}")
    number, what = request.get("id"), request.get("do")
    if type(number) not in (int, type(None)):
        raise ValueError("an id is a number")
    if type(what) is not str or what not in TABLES:
        raise ValueError(f"do is one of {' '.join(TABLES)}")
    if what == "stack" and type(request.get("task")) is not int:
        raise ValueError("task is the id of a task")
    return number, what, request


class Client:
    """One connection: at most one line that arrives, and the answer to it as far as it is made and unsent."""

    def __init__(
        self, connection: socket.socket, answer: Callable[[bytes], tuple[Iterator[Request], bool]]
    ) -> None:
        self._connection = connection
        self._answer = answer
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._lines: Iterator[Request] | None = None  # the rest of the answer, which is not made yet
        self._ends = 0.0  # when the whole answer must have been taken
        self.is_over: bool = False  # whether it is to be closed
        self._closes_after = False  # whether it is to be closed once all is sent
        self.deadline: float = time.monotonic() + IDLE_TIME

    @property
    def interest(self) -> int:
        """The events that the client waits for; that the other end has gone is always told."""
        if self._unsent:
            return select.POLLOUT
        return 0 if self._lines is not None else select.POLLIN

    @property
    def is_making(self) -> bool:
        """True if more of the answer can be made: all that was made is sent."""
        return self._lines is not None and not self._unsent

    def step(self, events: int) -> None:
        """Do what the socket allows now."""
        try:
            if self._lines is not None and events & (select.POLLHUP | select.POLLERR):
                self.is_over = True
            elif self._unsent:
                self._send()
            elif self._lines is None:
                self._receive()
            if self._lines is None and not self._unsent:
                self._begin()
        except BlockingIOError:
            pass
        except OSError:
            self.is_over = True

    def make(self) -> None:
        """Make some of the answer, and send it."""
        try:
            self._unsent = memoryview(b"".join(self._pieces()))
            self._send()
            if self._lines is None and not self._unsent:
                self._begin()
        except BlockingIOError:
            pass
        except (OSError, MemoryError):  # The client must not take it for whole.
            self.is_over = True

    def _pieces(self) -> list[bytes]:
        """Return the next lines, as many as can be made in a short time."""
        end = time.perf_counter() + tasks.PIECE
        made: list[bytes] = []
        while self._lines is not None and not (made and time.perf_counter() >= end):
            line = next(self._lines, None)
            if line is None:
                self._lines = None
            else:
                made.append(_line(line))
                if line.get("rows") == []:
                    break  # It is a sign of life, which must not wait.
        return made

    def _begin(self) -> None:
        """Begin the answer to the next line that has come, if it is whole."""
        if self._closes_after:
            self.is_over = True
        elif b"\n" in self._received:
            line, _, rest = self._received.partition(b"\n")
            self._received = bytearray(rest)
            self._lines, was_request = self._answer(bytes(line))
            self._closes_after = not was_request
            self._ends = time.monotonic() + ANSWER_TIME
            self.deadline = min(time.monotonic() + REQUEST_TIME, self._ends)

    def _receive(self) -> None:
        data = self._connection.recv(LONGEST_REQUEST + 1)
        if not data:
            self.is_over = True
            return
        if not self._received:
            self.deadline = time.monotonic() + REQUEST_TIME
        self._received += data
        if self._received.find(b"\n") < 0 and len(self._received) > LONGEST_REQUEST:
            self._received.clear()
            self._closes_after = True
            self._lines = iter([{"id": None, "error": "the request is too long"}])
            self._ends = self.deadline

    def _send(self) -> None:
        now = time.monotonic()
        self.deadline = min(now + REQUEST_TIME, self._ends)
        if self._unsent:
            self._unsent = self._unsent[self._connection.send(self._unsent) :]
        if self._lines is None and not self._unsent and not self._received:
            self.deadline = now + IDLE_TIME

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def is_allowed(connection: socket.socket) -> bool:
    """Return whether the other end is a process of the same user or of root's."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # The modes of directory and socket have to do.
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return False
    return struct.unpack("3i", found)[1] in (os.geteuid(), 0)


def _line(answer: Request) -> bytes:
    return json.dumps(answer, default=vars, separators=(",", ":")).encode() + b"\n"


# The tables.


def _hello(source: Any, request: Request) -> Answer:
    whorl: Any = sys.modules["whorl"]
    yield from ()
    return {
        "pid": os.getpid(),
        "whorl": whorl.__version__,
        "build": "compiled" if whorl.compiled else "pure",
        "python": platform.python_version(),
        "do": list(TABLES),
        "loops": [type_name(loop) for loop in source.loops()],
    }


def _tasks(source: Any, request: Request) -> Answer:
    return _of_each_loop(source, tasks.rows)


def _folded(source: Any, request: Request) -> Answer:
    folds: dict[int, tasks.Fold] = {}
    for line in _of_each_loop(source, tasks.rows):
        fold = folds.setdefault(line["loop"], tasks.Fold())
        for row in line["rows"]:
            fold.add(row)
        yield line | {"rows": []}
    for place, fold in folds.items():
        for group in fold.rows():
            yield {"loop": place, "rows": [group]}
    return max([len(_open_loops(source)), *(place + 1 for place in folds)])


def _handles(source: Any, request: Request) -> Answer:
    return _of_each_loop(source, handles.rows)


def _of_each_loop(source: Any, table: Callable[[Any], Iterator[Any]]) -> Answer:
    loops = _open_loops(source)
    for place, loop in enumerate(loops):
        yield {"loop": place, "rows": []}  # A sign of life: the first row may take long.
        rows = table(loop)
        while found := read(loop, lambda _, rows=rows: list(itertools.islice(rows, ROWS))):  # type: ignore[misc]
            yield {"loop": place, "rows": [row for row in found if row is not None]}
    return len(loops)


def _open_loops(source: Any) -> list[Any]:
    return [loop for loop in source.loops() if not loop.is_closed()]


def _stack(source: Any, request: Request) -> Answer:
    yield from ()
    for loop in _open_loops(source):
        found = read(loop, lambda loop: tasks.stack(loop, request["task"]))
        if found:
            return found
    return []


def _stalls(source: Any, request: Request) -> Answer:
    yield from ()
    return [plain(stall) for stall in source.stalls()]


TABLES: dict[str, Callable[[Any, Request], Answer]] = {
    "hello": _hello,
    "tasks": _tasks,
    "folded": _folded,
    "handles": _handles,
    "stack": _stack,
    "stalls": _stalls,
}
