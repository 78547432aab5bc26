"""The figures of tasks, as they are shown."""

from __future__ import annotations

from typing import NamedTuple


class TaskTimes(NamedTuple):
    """The times of a task, in nanoseconds. Together `busy_ns`, `scheduled_ns` and `idle_ns` are its life."""

    number: int  #: the number of the task in the recording
    steps: int
    busy_ns: int  #: in its steps
    scheduled_ns: int  #: in the queue of the loop
    idle_ns: int  #: the rest: it waited for something else
    longest_ns: int  #: its longest step
    wakes: int
    self_wakes: int  #: those by itself, such as `sleep(0)`
    made_ns: int  #: since when it is watched; as a rule, when it was made


class EndedTasks(NamedTuple):
    """The figures of the ended tasks of one coroutine function. Durations are nanoseconds."""

    coroutine: str
    tasks: int
    cancelled: int
    failed: int
    steps: int
    busy_ns: int
    scheduled_ns: int
    idle_ns: int
    longest_ns: int
    wakes: int
    self_wakes: int
