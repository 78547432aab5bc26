"""The waits of tasks: for a descriptor and its peer, a timer, a lock, a queue, a thread, another task.

The chain of coroutines is followed from the task to its end. The innermost functions of asyncio and of Whorl
say what kind of wait it is. The objects that their frames refer to say which lock, reader or request it is:
`gc.get_referents` gives them without a snapshot of the variables, so nothing lives longer than it would.
Frames of the program are passed: their file, line and name are read, and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
import time
import types
from asyncio import base_subprocess, locks, queues, streams, subprocess, taskgroups, tasks, timeouts
from collections.abc import Callable, Iterator
from typing import Any

from whorl.aio.connections import connect, resolver, server, start_tls, subprocesses
from whorl.aio.connections.name_lookup import NameLookups
from whorl.aio.connections.server import Server
from whorl.aio.files import await_request
from whorl.aio.futures.future import Future as OwnFuture
from whorl.aio.futures.task import Task as OwnTask
from whorl.aio.interop.reusable_future import ReusableFuture
from whorl.aio.sockets import sock_methods
from whorl.aio.sockets.connect_attempt import ConnectAttempt
from whorl.aio.sockets.watch import SocketWait
from whorl.aio.streams import reader_writer
from whorl.aio.threads.executor_job import ExecutorJob, unfinished_jobs
from whorl.aio.threads.future_chain import ChainedFuture
from whorl.core.kernel.kernel import Kernel
from whorl.formats.units import count, duration
from whorl.handles.fs.request import FsRequest
from whorl.inspector.tables.handles import describe, describe_descriptor, is_transport
from whorl.inspector.tables.wording import (
    address,
    due_text,
    field,
    function_name,
    identity,
    shown,
    size,
    task_name,
)

#: The longest chain of coroutines that is followed.
LONGEST_CHAIN = 1000
#: How often a task is looked at again if it went on meanwhile.
ATTEMPTS = 3
#: So many timers take about as long as the row of a task.
TIMERS_IN_ONE_GO = 50

#: The classes of asyncio's as it ships them, whatever a program puts in their place.
_PLAIN_TASK: Any = tasks._PyTask  # type: ignore[attr-defined]
_PLAIN_FUTURE: Any = asyncio.futures._PyFuture  # type: ignore[attr-defined]
_C_TASK: Any = getattr(tasks, "_CTask", _PLAIN_TASK)
_C_FUTURE: Any = getattr(asyncio.futures, "_CFuture", _PLAIN_FUTURE)
TASKS: tuple[type, ...] = (_C_TASK, OwnTask, _PLAIN_TASK)
FUTURES: tuple[type, ...] = (_C_FUTURE, OwnFuture, _PLAIN_FUTURE)
_GATHERING: Any = tasks._GatheringFuture  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class TaskWait:
    """The wait of a task: `text` is for people, the rest for programs."""

    kind: str
    text: str
    fd: int | None = None
    peer: str | None = None
    due_in: float | None = None  #: the seconds until the timer
    timeout_in: float | None = None  #: the seconds until a timeout ends the wait
    tasks: tuple[int, ...] = ()  #: the numbers of the tasks


class Link:
    """One coroutine or generator of a chain; `outer` is the one that awaits it."""

    __slots__ = ("awaitable", "code", "outer")

    def __init__(self, awaitable: Any, code: types.CodeType, outer: Link | None) -> None:
        self.awaitable: Any = awaitable
        self.code: types.CodeType = code
        self.outer: Link | None = outer

    def frame(self) -> types.FrameType | None:
        """Return its frame, None if it has ended."""
        frame: types.FrameType | None = getattr(self.awaitable, _NAMES[type(self.awaitable)] + "_frame")
        return frame

    def objects(self) -> list[Any]:
        """Return the objects its frame refers to, none while it runs."""
        kind = _NAMES[type(self.awaitable)]
        frame = self.frame()
        if frame is None or getattr(self.awaitable, kind + "_running"):
            return []
        return gc.get_referents(self.awaitable)

    def find(self, *classes: type) -> Any:
        """Return the first object of these classes that its frame refers to, or None."""
        for thing in self.objects():
            if issubclass(type(thing), classes):
                return thing
        return None


_NAMES: dict[type, str] = {
    types.CoroutineType: "cr",
    types.GeneratorType: "gi",
    types.AsyncGeneratorType: "ag",
}
_NEXT = {
    types.CoroutineType: "cr_await",
    types.GeneratorType: "gi_yieldfrom",
    types.AsyncGeneratorType: "ag_await",
}


async def _agen() -> Any:
    yield


async def _nothing() -> None:
    pass


def _wrappers() -> tuple[type, ...]:
    """Return the types of the interpreter's own awaitables that only pass calls on."""
    generator = _agen()
    step, throw = generator.__anext__(), generator.athrow(GeneratorExit)
    nothing = _nothing()
    other = _agen()
    optional = anext(other, None)
    kinds = (type(step), type(throw), type(optional), type(nothing.__await__()))
    for unused in (step, throw, optional, nothing):
        unused.close()
    return kinds


_WRAPPERS = _wrappers()


def chain_of(coro: Any) -> tuple[list[Link], Any]:
    """Return the coroutines from a task's to the innermost, and what that one awaits."""
    links: list[Link] = []
    awaited = coro
    for _ in range(LONGEST_CHAIN):
        kind = type(awaited)
        if kind in _NAMES:
            links.append(
                Link(awaited, getattr(awaited, _NAMES[kind] + "_code"), links[-1] if links else None)
            )
            awaited = getattr(awaited, _NEXT[kind])
        elif kind in _WRAPPERS:
            inner = [thing for thing in gc.get_referents(awaited) if type(thing) in (*_NAMES, *_WRAPPERS)]
            if not inner:
                break
            awaited = inner[0]
        else:
            break
    return links, awaited


class Tables:
    """The loop's tables at one moment: which timer, thread or timeout belongs to which future or task."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.now_ns: int = now_of(loop)
        self.timers: dict[int, float] = {}  # by future: the seconds until a timer sets it
        self.timeouts: dict[int, float] = {}  # by task: the seconds until its first timeout
        self.jobs: dict[int, ExecutorJob] = {
            id(job._future): job for job in unfinished_jobs() if job._loop is loop
        }

        shared = list(loop._shared.values())
        lookups = next((thing for thing in shared if type(thing) is NameLookups), None)
        #: By future: the host that is looked up, and for how many seconds.
        self.lookups: dict[int, tuple[bytes | None, float]] = {
            id(future): (host, (self.now_ns - began_ns) / 1e9)
            for future, host, began_ns in (() if lookups is None else lookups.under_way())
        }

    def read_timers(self) -> Iterator[None]:
        """Note the loop's timers, which may be many: some of them before each value that this yields."""
        for number, timer in enumerate(_timers(self.loop)):
            self._note_timer(timer)
            if number % TIMERS_IN_ONE_GO == 0:
                yield

    def _note_timer(self, timer: Any) -> None:
        callback, args = timer._callback, timer._args
        if timer._cancelled or callback is None:
            return
        seconds = (timer._deadline_ns - self.now_ns) / 1e9
        owner = owner_of(callback)
        kind = type(owner)
        if kind is timeouts.Timeout:
            task = field(owner, "_task")
            self.timeouts[id(task)] = min(seconds, self.timeouts.get(id(task), seconds))
        elif issubclass(kind, FUTURES):
            self.timers[id(owner)] = seconds
        elif args and issubclass(type(args[0]), FUTURES):
            self.timers[id(args[0])] = seconds


def _timers(loop: Any) -> list[Any]:
    found: list[Any] = loop._timer_queue.timers()
    return found


def now_of(loop: Any) -> int:
    """Return the loop's time in nanoseconds; a loop with a clock of its own is not asked for it."""
    is_real = type(loop._kernel) is Kernel and not loop._time_replaced
    return time.monotonic_ns() if is_real else int(loop.now())


# What each function of asyncio's and Whorl's waits for. A describer gets the tables, the links from this
# function on, and the future at the end.

Describer = Callable[[Tables, list[Link], Any], "TaskWait | None"]


def _sleep(tables: Tables, links: list[Link], future: Any) -> TaskWait:
    due = tables.timers.get(id(future))
    text = "a sleep" if due is None else f"a sleep, {due_text(due)}"
    return TaskWait("timer", text, due_in=due)


def _lock(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    lock = links[0].find(locks.Lock)
    return None if lock is None else TaskWait("lock", f"{identity(lock)}, {_waiting(lock, '_waiters')}")


def _event(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    event = links[0].find(locks.Event)
    return None if event is None else TaskWait("event", f"{identity(event)}, {_waiting(event, '_waiters')}")


def _condition(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    condition = links[0].find(locks.Condition)
    if condition is None:
        return None
    return TaskWait("condition", f"{identity(condition)}, {_waiting(condition, '_waiters')}")


def _semaphore(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    semaphore = links[0].find(locks.Semaphore)
    if semaphore is None:
        return None
    return TaskWait("semaphore", f"{identity(semaphore)}, {_waiting(semaphore, '_waiters')}")


def _barrier(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    barrier = links[0].find(locks.Barrier)
    if barrier is None:
        return None
    there, parties = field(barrier, "_count"), field(barrier, "_parties")
    return TaskWait("barrier", f"{identity(barrier)}, {_number(there)} of {_number(parties)} are there")


def _queue_get(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    queue = links[0].find(queues.Queue)
    if queue is None:
        return None
    return TaskWait("queue", f"an item of {identity(queue)}, {_waiting(queue, '_getters')}")


def _queue_put(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    queue = links[0].find(queues.Queue)
    if queue is None:
        return None
    bound = _number(field(queue, "_maxsize"))
    return TaskWait("queue", f"room in {identity(queue)}, full with {bound}, {_waiting(queue, '_putters')}")


def _queue_join(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    queue = links[0].find(queues.Queue)
    if queue is None:
        return None
    rest = _number(field(queue, "_unfinished_tasks"))
    return TaskWait("queue", f"task_done of {identity(queue)}, {rest} items left")


def _look_up(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    known = tables.lookups.get(id(future))
    if known is not None:
        host = "a port" if known[0] is None else shown(known[0])
        return TaskWait("lookup", f"a look-up of {host} for {duration(known[1])}")
    asking = links[0].awaitable
    own = (asking.__name__, asking.__qualname__)  # It refers to these as well.
    texts = (thing for thing in links[0].objects() if type(thing) in (str, bytes) and thing not in own)
    return TaskWait("lookup", f"a look-up of {shown(next(texts, 'a name'))} in a thread of an executor")


def _waiting(thing: Any, name: str) -> str:
    """Return how many tasks wait for the same."""
    waiters = size(field(thing, name))
    return "1 task waits" if waiters == 1 else f"{waiters} tasks wait"


def _number(number: object) -> str:
    return str(number) if type(number) in (int, float) else "?"


def _reader(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    for link in links:
        reader = link.find(streams.StreamReader)
        if reader is not None:
            feed = field(reader, "_received")
            transport = field(reader, "_transport") if feed is None else feed.transport
            return _transport_wait("data from", transport)
    return None


def _drain(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    return _writer_wait("room to write to", links)


def _writer_closed(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    return _writer_wait("the end of the connection to", links)


def _writer_wait(what: str, links: list[Link]) -> TaskWait | None:
    writer = links[0].find(streams.StreamWriter)
    return None if writer is None else _transport_wait(what, field(writer, "_transport"))


def _transport_wait(what: str, transport: Any) -> TaskWait:
    if transport is None:
        return TaskWait("stream", f"{what} a stream without a transport")
    known = describe(transport)
    kind = "stream" if known.fd is None else "descriptor"
    return TaskWait(kind, f"{what} {known.text}", fd=known.fd, peer=known.peer)


def _socket_wait(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    for link in links:
        for thing in link.objects():
            if type(thing) is SocketWait and thing._watched is not None:
                watch = thing._watched
                owner = None if watch._owner is None else watch._owner()
                known = describe_descriptor(tables.loop, watch._fd, owner)
                plain = "data from" if watch.receiver is thing else "room to write to"
                what = _SOCKET_WORDS.get(links[0].code.co_name, plain)
                return TaskWait("descriptor", f"{what} {known.text}", fd=known.fd, peer=known.peer)
    return None


_SOCKET_WORDS = {
    "sock_recv": "data from",
    "sock_recv_into": "data from",
    "sock_recvfrom": "a datagram at",
    "sock_recvfrom_into": "a datagram at",
    "sock_sendall": "room to write to",
    "sock_sendto": "room to send from",
    "sock_accept": "a connection to",
    "sock_connect": "the connection of",
}


def _connect_wait(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    """Describe the wait for a connect: its address is that of the function that was asked for it."""
    for link in reversed(links):
        objects = link.objects()
        attempts = [thing for thing in objects if type(thing) is ConnectAttempt]
        if attempts:
            return _connect_to(attempts[0]._fd, objects)
    wait = _socket_wait(tables, links, future)
    if wait is not None and wait.fd is not None:
        return _connect_to(wait.fd, links[0].objects())
    return _setting_up(tables, links, future)


def _connect_to(fd: int, objects: list[Any]) -> TaskWait:
    names = [address(thing) for thing in objects if type(thing) is tuple]
    peer = next((name for name in names if name is not None), None)
    return TaskWait("descriptor", f"the connection to {peer or 'a peer'} (fd {fd})", fd=fd, peer=peer)


def _setting_up(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    """Describe the wait for a new transport: its handshake, or its first turn."""
    for link in reversed(links):
        for thing in link.objects():
            if is_transport(thing):
                return _transport_wait("the start of the connection to", thing)
    return None


def _process(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    for link in reversed(links):
        transport = link.find(base_subprocess.BaseSubprocessTransport, subprocesses.SubprocessTransport)
        if transport is not None:
            return TaskWait("process", f"the end of the process {_number(field(transport, '_pid'))}")
    return None


def _serving(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    found = links[0].find(Server)
    if found is None:
        return None
    places = [describe(acceptor) for acceptor in field(found, "_acceptors") or ()]
    fd = places[0].fd if len(places) == 1 else None
    text = ", ".join(place.local or place.text for place in places)
    return TaskWait("server", f"the end of the server at {text}", fd=fd)


def _server_closed(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    found = links[0].find(Server)
    if found is None:
        return None
    connections = count(len(field(found, "_clients") or ()), "connection")
    return TaskWait("server", f"the end of a server with {connections}")


def _request(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    request = links[0].find(FsRequest)
    if request is None:
        return None
    asked = links[0]
    while asked.outer is not None and is_library(asked.outer.code):
        asked = asked.outer
    paths = " and ".join(shown(path) for path in request._operation.paths if type(path) in (str, bytes))
    return TaskWait("file", f"a thread: {asked.code.co_qualname} {paths}".rstrip(), peer=paths or None)


def _group(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    group = links[0].find(taskgroups.TaskGroup)
    if group is None:
        return None
    left = _unfinished(field(group, "_tasks") or ())
    return TaskWait("group", f"a TaskGroup: {_left(left)}", tasks=_ids(left))


def _wait_some(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    found = links[0].find(set, frozenset)
    if found is None:
        return None
    left = _unfinished(found)
    due = tables.timers.get(id(future))
    return TaskWait("wait", f"asyncio.wait: {_left(left)}", timeout_in=due, tasks=_ids(left))


def _wait_for(tables: Tables, links: list[Link], future: Any) -> TaskWait | None:
    """Describe `asyncio.wait_for` of Python 3.11, which awaits a future of its own."""
    inner = [
        thing for thing in links[0].objects() if issubclass(type(thing), FUTURES) and thing is not future
    ]
    if not inner:
        return None
    wait = describe_future(tables, inner[0])
    return dataclasses.replace(wait, timeout_in=tables.timers.get(id(future)))


def _turn(tables: Tables, links: list[Link], future: Any) -> TaskWait:
    return TaskWait("turn", "the next turn")


def _left(left: list[Any]) -> str:
    return f"{count(len(left), 'task')} not done"


def _unfinished(found: Any) -> list[Any]:
    """Return the futures of a collection that are not done; another thread may be changing it."""
    for _ in range(ATTEMPTS):
        try:
            return [
                future for future in list(found) if issubclass(type(future), FUTURES) and is_pending(future)
            ]
        except RuntimeError:
            continue
    return []


def _ids(futures: list[Any]) -> tuple[int, ...]:
    return tuple(id(future) for future in futures if issubclass(type(future), TASKS))


def _functions() -> Iterator[tuple[Any, Describer]]:
    yield tasks.sleep, _sleep
    yield tasks._wait, _wait_some  # type: ignore[attr-defined]
    if sys.version_info < (3, 12):
        yield tasks.wait_for, _wait_for
    yield locks.Lock.acquire, _lock
    yield locks.Event.wait, _event
    yield locks.Condition.wait, _condition
    yield locks.Semaphore.acquire, _semaphore
    yield locks.Barrier.wait, _barrier
    yield queues.Queue.get, _queue_get
    yield queues.Queue.put, _queue_put
    yield queues.Queue.join, _queue_join
    for reader in (streams.StreamReader, reader_writer.StreamReader):
        for name in ("read", "readline", "readuntil", "readexactly", "_wait_for_data"):
            yield vars(reader)[name], _reader
    for writer in (streams.StreamWriter, reader_writer.StreamWriter):
        yield vars(writer)["drain"], _drain
    yield streams.StreamWriter.wait_closed, _writer_closed
    yield base_subprocess.BaseSubprocessTransport._wait, _process
    yield subprocesses.SubprocessTransport._wait, _process
    yield subprocess.Process.wait, _process
    for name in ("__aexit__", "_aexit"):
        yield getattr(taskgroups.TaskGroup, name, None), _group
    for name in _SOCKET_WORDS:
        yield getattr(sock_methods, name), _connect_wait if name == "sock_connect" else _socket_wait
    yield sock_methods._when_readable, _socket_wait
    yield sock_methods._when_writable, _socket_wait
    yield sock_methods._outcome, _socket_wait
    yield sock_methods.connected, _connect_wait
    yield sock_methods._turn, _turn
    yield await_request.next_turn, _turn
    yield connect._open_plain, _connect_wait
    for module in (connect, start_tls):
        for function in vars(module).values():
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                yield function, _setting_up
    yield resolver.getaddrinfo, _look_up
    yield server.Server.serve_forever, _serving
    yield server.Server.wait_closed, _server_closed
    yield await_request.await_request, _request


def _known_codes() -> dict[types.CodeType, Describer]:
    known: dict[types.CodeType, Describer] = {}
    for function, describer in _functions():
        code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
        if code is not None:
            known.setdefault(code, describer)
    return known


KNOWN = _known_codes()


# The end of a chain.


def describe_future(tables: Tables, future: Any) -> TaskWait:
    """Return what a future stands for."""
    kind = type(future)
    if issubclass(kind, TASKS):
        return TaskWait("task", f"the task {task_name(future)}", tasks=(id(future),))
    if kind is _GATHERING:
        left = _unfinished(future._children)
        return TaskWait("gather", f"a gather: {_left(left)}", tasks=_ids(left))
    job = tables.jobs.get(id(future))
    if job is not None:
        function = job.function
        named = "a function" if function is None else function_name(function)
        return TaskWait("job", f"a thread of an executor: {named}")
    due = tables.timers.get(id(future))
    if due is not None:
        return TaskWait("timer", f"a timer, {due_text(due)}", due_in=due)
    for callback in callbacks_of(future):
        found = _from_callback(tables, callback)
        if found is not None:
            return found
    return TaskWait("future", "a future")


def callbacks_of(future: Any) -> list[Any]:
    try:
        return [pair[0] for pair in list(future._callbacks or ())]
    except (AttributeError, TypeError, IndexError):
        return []


def _from_callback(tables: Tables, callback: Any) -> TaskWait | None:
    """Return what a future stands for that has this callback of asyncio's or of Whorl's, or None."""
    if type(owner_of(callback)) is ChainedFuture:
        return TaskWait("job", "a future of another thread or process")
    if type(callback) is not types.FunctionType:
        return None
    name = callback.__code__.co_qualname
    if callback.__module__ == "asyncio.tasks" and name == "shield.<locals>._outer_done_callback":
        inner = _of_closure(callback, "inner")
        if issubclass(type(inner), FUTURES):
            wait = describe_future(tables, inner)
            return dataclasses.replace(wait, text=f"{wait.text}, shielded")
    if callback.__module__ == "asyncio.futures" and name == "_chain_future.<locals>._call_check_cancel":
        return TaskWait("job", "a future of another thread or process")
    return None


def owner_of(callback: Any) -> Any:
    """Return the object of a method, None for anything else."""
    return (
        callback.__self__ if issubclass(type(callback), (types.MethodType, types.BuiltinMethodType)) else None
    )


def _of_closure(function: types.FunctionType, name: str) -> Any:
    """Return a variable of an inner function of asyncio's, None if there is none of this name."""
    try:
        return (function.__closure__ or ())[function.__code__.co_freevars.index(name)].cell_contents
    except (ValueError, IndexError):
        return None


def is_pending(future: Any) -> bool:
    """Return whether a future of asyncio's or of Whorl's is not done."""
    return bool(future._state == "PENDING")


def wait_of(tables: Tables, task: Any, links: list[Link], end: Any, future: Any) -> TaskWait | None:
    """Return what a task waits for, None if nothing: it runs, or it is about to."""
    if not is_waiting(end, future):
        return None
    own = _own_links(links)
    wait = None
    if not issubclass(type(future), TASKS) and type(future) is not _GATHERING:
        for start in range(len(own)):
            describer = KNOWN.get(own[start].code)
            wait = None if describer is None else describer(tables, own[start:], future)
            if wait is not None:
                break
    if wait is None:
        wait = describe_future(tables, future)
    timeout = tables.timeouts.get(id(task))
    return wait if timeout is None else dataclasses.replace(wait, timeout_in=timeout)


def is_waiting(end: Any, future: Any) -> bool:
    """Return whether a task waits: for `future`, which `end`, the last of its coroutines, has given it."""
    if future is None or (type(end) in _SPECIAL_ENDS and end.done()):
        return False
    return is_pending(future)


_SPECIAL_ENDS = tuple(ReusableFuture.__subclasses__())


def _own_links(links: list[Link]) -> list[Link]:
    """Return the innermost links, as far as they are functions of asyncio's or of Whorl's."""
    first = len(links)
    while first > 0 and is_library(links[first - 1].code):
        first -= 1
    return links[first:]


_FOLDERS = tuple(
    module.__file__.rpartition("/")[0] + "/" for module in (asyncio, sys.modules["whorl"]) if module.__file__
)


def is_library(code: types.CodeType) -> bool:
    """Return whether a function is one of asyncio's or of Whorl's."""
    return code.co_filename.startswith(_FOLDERS)
