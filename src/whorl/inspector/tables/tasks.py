"""The tables of a loop's tasks: their states, what each waits for, and who waits for whom.

Any thread may ask, also while the loop is stuck. A task that goes on while it is looked at is looked at
again. From another thread the tables are made in small pieces, so that the loop never waits long for the
interpreter.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from whorl.core.loop.loop import Loop
from whorl.formats.units import count
from whorl.inspector.tables import waits
from whorl.inspector.tables.own_frames import package_of
from whorl.inspector.tables.waits import ATTEMPTS, Tables, TaskWait, chain_of, is_library
from whorl.inspector.tables.wording import due_text, field, function_name, shown, task_name

#: How long another thread works on a table before it lets the loop run, in seconds, and for how long.
PIECE = 0.0002
PAUSE = 0.0001
#: Of tasks that are alike, a tree shows so many.
DEEPEST = 200  # of the levels of a tree
SHOWN_ALIKE = 3


@dataclasses.dataclass(frozen=True)
class TaskFigures:
    """One task. A field that is not known is None.

    `where` is the innermost function of the program's own: its file, line and name. `parent` is the task that
    the tree shows above: the one whose TaskGroup it is in, or one that waits for it.

    The rest is known while the loop is recorded. `busy_ns` is the time in the task's steps, `scheduled_ns`
    that in the loop's queue, and `idle_ns` the rest of its life.
    """

    id: int
    name: str
    coro: str
    state: str  #: running, scheduled, waiting, done
    where: tuple[str, int, str] | None
    waits_for: TaskWait | None = None
    parent: int | None = None
    steps: int | None = None
    busy_ns: int | None = None
    scheduled_ns: int | None = None
    idle_ns: int | None = None
    longest_ns: int | None = None
    wakes: int | None = None
    self_wakes: int | None = None


@dataclasses.dataclass(frozen=True)
class AlikeTasks:
    """The tasks at one line that wait for the same kind of thing; `text` is the wait of one of them."""

    count: int
    coro: str
    state: str
    where: tuple[str, int, str] | None
    kind: str
    text: str


_TIMES = ("steps", "busy_ns", "scheduled_ns", "idle_ns", "longest_ns", "wakes", "self_wakes")


def tasks(loop: Any) -> list[TaskFigures]:
    """Return the tasks of a loop, in the order of their names' numbers where they have such names."""
    breathe = breather(loop)
    found = []
    for row in rows(loop):
        if row is not None:
            found.append(row)
        breathe()
    return arranged(found)


def rows(loop: Any) -> Iterator[TaskFigures | None]:
    """Yield the tasks of a loop as they come, and None for other work that took as long.

    `arranged` puts the table in order when it is whole.

    Nothing is made for a task that the collector would have to look at: there may be very many.
    """
    left = all_tasks(loop)
    running = id(_current_task(loop))
    tables = Tables(loop)
    try:
        yield from tables.read_timers()
        while left:
            task = left.pop()
            figures = _figures(tables, task, id(task) == running)
            if figures.state == "done":
                _give_back(loop, [task])
            del task
            yield figures
    finally:  # Who asked may have gone.
        if left:
            _give_back(loop, left)


def _give_back(loop: Any, tasks: list[Any]) -> None:
    """Let the loop's thread be the last that has these tasks: it frees them, and tells of their errors.

    A loop that does not run has no thread, and may never run again, so they are freed here. It may end its
    run at any time, so that is asked once more; to clear the list twice does no harm.
    """
    runner = loop._thread_id
    if runner == threading.get_ident():
        return
    if runner is not None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            Loop.call_soon_threadsafe(loop, tasks.clear)
    if loop._thread_id is None:
        tasks.clear()


def _give_back_ended(loop: Any, tasks: list[Any]) -> None:
    """Do this for those tasks that have ended since they were listed; others keep the rest."""
    ended = [task for task in tasks if task.done()]
    tasks.clear()
    if ended:
        _give_back(loop, ended)


def arranged(found: list[TaskFigures]) -> list[TaskFigures]:
    """Return the rows of a table in the order of their names, with those as parents that wait for them."""
    return sorted(_with_parents(found), key=lambda figures: (len(figures.name), figures.name))


class Fold:
    """Tasks counted by what is alike: their coroutine, their line, their state, the kind of their wait."""

    def __init__(self) -> None:
        self._first: dict[Any, TaskFigures] = {}
        self._counts: collections.Counter[Any] = collections.Counter()

    def add(self, row: TaskFigures) -> None:
        """Count a task."""
        kind = "" if row.waits_for is None else row.waits_for.kind
        key = (row.coro, row.where, row.state, kind)
        self._first.setdefault(key, row)
        self._counts[key] += 1

    def rows(self) -> Iterator[AlikeTasks]:
        """Yield the groups, the largest first."""
        for key, number in self._counts.most_common():
            coro, where, state, kind = key
            yield AlikeTasks(number, coro, state, where, kind, wait_text(self._first[key]))


def states(loop: Any) -> dict[str, int]:
    """Return how many tasks of a loop run, are scheduled, and wait. It costs a small part of `tasks`."""
    everyone = all_tasks(loop)
    breathe = breather(loop)
    current = _current_task(loop)
    counts = {"running": 0, "scheduled": 0, "waiting": 0}
    for task in everyone:
        if task is current:
            counts["running"] += 1
        elif not task.done():
            future = getattr(task, "_fut_waiter", None)
            waiting = future is not None and waits.is_waiting(chain_of(_coroutine(task))[1], future)
            counts["waiting" if waiting else "scheduled"] += 1
        breathe()
    task = current = future = None
    _give_back_ended(loop, everyone)
    return counts


def all_tasks(loop: Any) -> list[Any]:
    """Return the tasks of a loop that are not done."""
    for _ in range(ATTEMPTS - 1):
        try:
            return list(asyncio.all_tasks(loop))
        except RuntimeError:  # They changed too often.
            time.sleep(PAUSE)
    return list(asyncio.all_tasks(loop))


def breather(loop: Any) -> Callable[[], None]:
    """Return a function that lets the loop's thread run now and then, if this is another thread."""
    if loop._thread_id in (None, threading.get_ident()):
        return lambda: None
    began = time.perf_counter()

    def breathe() -> None:
        nonlocal began
        if time.perf_counter() - began > PIECE:
            time.sleep(PAUSE)
            began = time.perf_counter()

    return breathe


def _current_task(loop: Any) -> Any:
    """Return the task that runs on a loop; None if there is none."""
    try:
        return asyncio.current_task(loop)
    except RuntimeError:
        return None


def _figures(tables: Tables, task: Any, is_current: bool) -> TaskFigures:
    for attempt in range(ATTEMPTS):
        coro = _coroutine(task)
        future = getattr(task, "_fut_waiter", None)
        links, end = chain_of(coro)
        wait = None
        if is_current:
            state = "running"
        elif task.done():
            state = "done"
        else:
            wait = waits.wait_of(tables, task, links, end, future)
            state = "scheduled" if wait is None else "waiting"
        if attempt + 1 == ATTEMPTS or getattr(task, "_fut_waiter", None) is future:
            break
    return TaskFigures(
        id(task),
        task_name(task),
        function_name(coro),
        state,
        where(links),
        wait,
        _group_parent(task),
        **_times(tables.loop, task),
    )


def _times(loop: Any, task: Any) -> dict[str, int]:
    recorder = loop._recorder
    times = None if recorder is None else recorder.times_of(task)
    return {} if times is None else {name: getattr(times, name) for name in _TIMES}


def _coroutine(task: Any) -> Any:
    coro = getattr(task, "_coro", None)
    return coro if coro is not None or type(task) in waits.TASKS else task.get_coro()


def where(links: list[waits.Link]) -> tuple[str, int, str] | None:
    """Return the file, the line and the name of the innermost function of the program's.

    Of a task that runs none, it is that of the innermost package that is neither asyncio nor Whorl.
    """
    own = (
        [link for link in links if not package_of(link.code.co_filename)]
        or [link for link in links if not is_library(link.code)]
        or links
    )
    return None if not own else place_of(own[-1])


def place_of(link: waits.Link) -> tuple[str, int, str]:
    """Return the file, the line and the name of a function that a chain is in."""
    frame = link.frame()
    line = link.code.co_firstlineno if frame is None else frame.f_lineno or link.code.co_firstlineno
    return shown(link.code.co_filename), line, shown(link.code.co_qualname)


def stack(loop: Any, number: int) -> list[tuple[str, int, str]]:
    """Return the functions that a task is in, outermost first; none if there is no task of this number."""
    found = []
    everyone = all_tasks(loop)
    for task in everyone:
        if id(task) == number:
            found = [place_of(link) for link in chain_of(_coroutine(task))[0]]
    task = None
    _give_back_ended(loop, everyone)
    return found


def _group_parent(task: Any) -> int | None:
    """Return the number of the task whose TaskGroup a task is in."""
    for callback in waits.callbacks_of(task):
        owner = waits.owner_of(callback)
        if issubclass(type(owner), asyncio.taskgroups.TaskGroup):
            parent = field(owner, "_parent_task")
            return None if parent is None else id(parent)
    return None


def _with_parents(found: list[TaskFigures]) -> list[TaskFigures]:
    known = {figures.id for figures in found}
    waiting: dict[int, int] = {}
    for figures in found:
        for number in figures.waits_for.tasks if figures.waits_for is not None else ():
            waiting.setdefault(number, figures.id)
    rows = []
    for figures in found:
        parent = figures.parent if figures.parent in known else waiting.get(figures.id)
        rows.append(dataclasses.replace(figures, parent=parent))
    return rows


# The tree.


def tree(loop: Any) -> str:
    """Return the tasks of a loop as a tree: each under the task that waits for it."""
    return tree_of(tasks(loop))


def tree_of(found: list[TaskFigures]) -> str:
    """Return a table of tasks as a tree."""
    lines = [summary(found)]
    found = list({figures.id: figures for figures in found}.values())  # Another process may repeat them.
    children: dict[int | None, list[TaskFigures]] = collections.defaultdict(list)
    known = {figures.id: figures for figures in found}
    cycles = _cycles(known)
    in_cycle = {number for cycle in cycles for number in cycle}
    for figures in found:
        children[None if figures.id in in_cycle else figures.parent].append(figures)
    for cycle in cycles:
        names = [known[number].name for number in cycle]
        lines += ["", _cycle_line(names)]
        for number in cycle:
            lines += _branch(known[number], children, "  ", "  ")
    roots = [figures for figures in children[None] if figures.id not in in_cycle]
    if roots:
        lines.append("")
    for group in _alike(roots, children):
        for figures in group[:SHOWN_ALIKE]:
            lines += _branch(figures, children, "", "")
        lines += _folded(group, "")
    return "\n".join(lines)


def _cycle_line(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} waits for itself:"
    return f"{', '.join(names[:-1])} and {names[-1]} wait for each other:"


def _cycles(known: dict[int, TaskFigures]) -> list[list[int]]:
    """Return the groups of tasks each of which waits for the next one, and the last for the first."""
    cycles: list[list[int]] = []
    seen: set[int] = set()
    for start in known:
        path: dict[int, None] = {}
        number: int | None = start
        while number is not None and number in known and number not in seen and number not in path:
            path[number] = None
            wait = known[number].waits_for
            following = [] if wait is None else [other for other in wait.tasks if other in known]
            back = [other for other in following if other in path]
            number = back[0] if back else following[0] if following else None
        if number is not None and number in path:
            order = list(path)
            cycles.append(order[order.index(number) :])
        seen.update(path)
    return cycles


def _branch(
    figures: TaskFigures, children: dict[int | None, list[TaskFigures]], first: str, rest: str
) -> list[str]:
    below = children.get(figures.id, [])
    bar = "│ " if below else "  "
    lines = [f"{first}{_title(figures)}", f"{rest}{bar}{_wait_line(figures)}"]
    if below and len(rest) >= 3 * DEEPEST:
        return [*lines, f"{rest}└─ … and those that it waits for"]
    groups = list(_alike(below, children))
    for number, group in enumerate(groups):
        is_last = number + 1 == len(groups)
        folded = _folded(group, rest + ("└─ " if is_last else "├─ "))
        for place, child in enumerate(group[:SHOWN_ALIKE]):
            ends = is_last and not folded and place + 1 == len(group[:SHOWN_ALIKE])
            fork, trunk = ("└─ ", "   ") if ends else ("├─ ", "│  ")
            lines += _branch(child, children, rest + fork, rest + trunk)
        lines += folded
    return lines


def _alike(
    found: list[TaskFigures], children: dict[int | None, list[TaskFigures]]
) -> Iterator[list[TaskFigures]]:
    """Give the tasks in groups of those that differ in their names and descriptors only."""
    groups: dict[Any, list[TaskFigures]] = collections.defaultdict(list)
    for figures in found:
        wait = figures.waits_for
        alone = figures.id if children.get(figures.id) else None
        groups[alone, figures.coro, figures.where, figures.state, wait and wait.kind].append(figures)
    yield from groups.values()


def _folded(group: list[TaskFigures], lead: str) -> list[str]:
    rest = len(group) - SHOWN_ALIKE
    return (
        [f"{lead}… and {rest:,} more like {'this one' if SHOWN_ALIKE == 1 else 'these'}"] if rest > 0 else []
    )


def _title(figures: TaskFigures) -> str:
    place = "" if figures.where is None else f"  {short_path(figures.where[0])}:{figures.where[1]}"
    return f"{figures.name}  {figures.coro}{place}"


def _wait_line(figures: TaskFigures) -> str:
    return wait_text(figures) if figures.waits_for is None else f"waits for {wait_text(figures)}"


def wait_text(figures: TaskFigures) -> str:
    """Return what a task waits for in one line, or its state."""
    wait = figures.waits_for
    if wait is None:
        return "" if figures.state == "waiting" else f"is {figures.state}"
    if wait.timeout_in is None:
        return wait.text
    return f"{wait.text}; timeout {due_text(wait.timeout_in, 'in')}"


def summary(found: list[TaskFigures]) -> str:
    """Return how many tasks are in which state."""
    states = collections.Counter(figures.state for figures in found)
    order = ("running", "scheduled", "waiting", "done")
    parts = ", ".join(f"{states[state]:,} {state}" for state in order if states[state])
    return f"{count(len(found), 'task')}{': ' if parts else ''}{parts}"


def short_path(path: str) -> str:
    """Return the last two parts of a path."""
    parts = path.split("/")
    return "/".join(parts[-2:]) if len(parts) > 3 else path
