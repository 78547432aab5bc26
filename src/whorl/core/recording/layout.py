"""The layout of a recording in memory: one header, a slot for each loop, names, stalls, and a ring of events.

The memory is a file that is mapped, or the process's own. Loops write it while they run, and another process
may read it at any time, also when the writer was killed. So there is no lock. Each number is one aligned
word; a reader may see the parts of a record apart. It drops events that were overwritten while it read.

All numbers are little-endian. Times are nanoseconds of the monotonic clock, unless said. An id of a name is
the place of its entry in the region of names: two bytes for the length, then UTF-8. 0 is no name.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"WHORLREC"
VERSION: Final = 1

# The header: its fields follow each other.
HEADER_SIZE: Final = 4096
#: Magic, version, 0, size of all, process, when that began (proc(5), field 22), boot id, and the number of
#: the PID namespace in which the process has its number (the inode of `/proc/self/ns/pid`); 0: not told.
HEADER: Final = struct.Struct("<8sIIQQQ36sI")
#: Wall clock minus monotonic clock; state (below); monotonic time of the last sign of life of the watchdog.
CLOCK_AT: Final = 80
STATE_AT: Final = 88
ALIVE_AT: Final = 96
#: Offset, size of one, and number of: slots of loops, bytes of names, stalls, events.
REGIONS_AT: Final = 104
REGIONS: Final = struct.Struct("<12Q")
#: How many bytes of names are used; how many stalls, events and starved callbacks there were.
NAMES_USED_AT: Final = 200
STALLS_WRITTEN_AT: Final = 208
EVENTS_WRITTEN_AT: Final = 216
STARVED_AT: Final = 224
#: How many loops run that have no slot.
LEFT_OUT_AT: Final = 232
#: The version of Whorl, that of Python, and the command line with NUL between its words. All are UTF-8, are
#: cut, and end with NUL.
WHORL_AT: Final = 256
PYTHON_AT: Final = 288
COMMAND_AT: Final = 512
COMMAND_SIZE: Final = 1024
#: What the native thread saw while C code held the interpreter's lock: since when the loop has not gone on,
#: when it was last seen so, the number of its thread, the length of the stack, and the system call as the
#: kernel tells it. Since 0: nothing, or the watchdog has written a stall of it. The stack follows, as
#: `faulthandler` writes it: the innermost line first.
BLIND_AT: Final = 1536
BLIND: Final = struct.Struct("<4q120s")
BLIND_STACK_AT: Final = BLIND_AT + BLIND.size
BLIND_STACK_SIZE: Final = HEADER_SIZE - BLIND_STACK_AT

# The states of a recording.
RECORDING: Final = 1
FINISHED: Final = 2

# The slots of loops.
LOOPS: Final = 16
LOOP_SIZE: Final = 32768
#: The numbers at the beginning of a slot, in this order.
LOOP_FIELDS: Final = (
    "state",  # 0 free, 1 open, 2 closed
    "number",  # from 1
    "thread",  # the kernel's number of its thread
    "updated_ns",  # when the numbers below were written: before each sleep, and about each PUBLISHED_NS
    "turns",
    "events",
    "callbacks",
    "idle_ns",
    "sleep_began_ns",  # 0 unless it sleeps
    "run_began_ns",  # 0 unless it runs
    "ran_ns",
    "ready",
    "timers",
    "handles",
    "call_began_ns",  # when the callback that runs began; 0: none runs
    "call_name",  # its name's id
    "call_task",  # the number of the task whose step it is; 0: no task's
    "tasks_made",
    "tasks_done",
    "steps",
)
#: Their places. `whorl_write_call` relies on it that those of the call follow each other.
STATE, NUMBER, THREAD, UPDATED, TURNS, EVENTS, CALLBACKS, IDLE, SLEEP_BEGAN, RUN_BEGAN = range(10)
RAN, WAITING, TIMERS, OPEN_HANDLES = range(10, 14)
CALL_BEGAN, CALL_NAME, CALL_TASK, TASKS_MADE, TASKS_DONE, STEPS = range(14, 20)
FIELDS: Final = len(LOOP_FIELDS)
#: The counters and the histograms of a loop (`core/figures`), in one block.
FIGURES_AT: Final = 512

NAMES_SIZE: Final = 1 << 20
LONGEST_NAME: Final = 256  # bytes
FIRST_NAME: Final = 8

STALLS: Final = 16
#: A slot of a stall has its length as 4 bytes, then JSON.
STALL_SIZE: Final = 8192

#: When, how long in TOOK_UNITs (the greatest: at least so long), kind, flags, number of the loop, subject.
EVENT: Final = struct.Struct("<qIBBHQ")
TOOK_UNIT_NS: Final = 16
LONGEST_TOOK: Final = (1 << 32) - 1

# The kinds of events, and their subjects. `name | number` is a name's id in the upper 32 bits and a number
# in the lower ones.
TURN: Final = 1  # took: without its sleep; the number of entries that ran
POLL: Final = 2  # took: how long it slept; the number of events found
CALLBACK: Final = 3  # took; name | 0; an I/O handle with the flag IO: name of its class | descriptor
STEP: Final = 4  # took; name of the coroutine | number of the task
WAKE: Final = 5  # a task is scheduled: number of the task that did it, or 0 | number of the task
TASK_MADE: Final = 6  # name of the task | number; without a name it is `Task-N`, and N is in took
TASK_DONE: Final = 7  # name of the coroutine | number; flags CANCELLED, FAILED
TIMER_LATE: Final = 8  # took: how late; name | 0
HANDLE_OPENED: Final = 9  # name of the class | descriptor
HANDLE_CLOSED: Final = 10  # the same
COLLECTED: Final = 11  # took: the garbage collector ran in the thread of the loop (0: in another); generation
STALLED: Final = 12  # took: how long; the number of the stall
MARK: Final = 13  # name | 0, by `Inspector.mark`
READY: Final = 14  # a counter, as it is then: entries of the next turn
BYTES_IN: Final = 15  # a counter: bytes ever read
BYTES_OUT: Final = 16  # a counter: bytes ever written
HANDLES: Final = 17  # a counter: open handles
UTILIZATION: Final = 18  # a counter: thousandths of the time since the last one that the loop was awake

KIND_NAMES: Final = {
    TURN: "turn",
    POLL: "poll",
    CALLBACK: "callback",
    STEP: "step",
    WAKE: "wake",
    TASK_MADE: "task made",
    TASK_DONE: "task done",
    TIMER_LATE: "timer late",
    HANDLE_OPENED: "handle opened",
    HANDLE_CLOSED: "handle closed",
    COLLECTED: "collected",
    STALLED: "stalled",
    MARK: "mark",
    READY: "ready",
    BYTES_IN: "bytes in",
    BYTES_OUT: "bytes out",
    HANDLES: "handles",
    UTILIZATION: "utilization",
}

# Flags.
CANCELLED: Final = 1
FAILED: Final = 2
IO: Final = 4
WATCHED_LATE: Final = 8  # of a task: it was first seen at a step, not when it was made

#: Events of callbacks and steps that are shorter are left out, unless all are asked for. In nanoseconds.
SHORTEST_RECORDED_NS: Final = 100_000

#: A loop that does not sleep writes its numbers at most so often, in nanoseconds.
PUBLISHED_NS: Final = 1_000_000

#: The least and the most memory for events, in bytes.
LEAST_RING: Final = 64 << 10
MOST_RING: Final = 1 << 30


def events_in(ring: int) -> int:
    """Return how many events a ring of at most so many bytes holds: a power of two."""
    count = 1
    while 2 * count * EVENT.size <= ring:
        count *= 2
    return count


def offsets(events: int) -> tuple[int, int, int, int, int]:
    """Return where slots of loops, names, stalls and events begin, and the size of a recording."""
    loops = HEADER_SIZE
    names = loops + LOOPS * LOOP_SIZE
    stalls = names + NAMES_SIZE
    ring = stalls + STALLS * STALL_SIZE
    return loops, names, stalls, ring, ring + events * EVENT.size


def lay_out(
    memory: memoryview,
    events: int,
    *,
    pid: int = 0,
    started: int = 0,
    boot: bytes = b"",
    namespace: int = 0,
    clock_ns: int = 0,
    whorl: str = "",
    python: str = "",
    command: bytes = b"",
) -> None:
    """Write the header of a new recording into zeroed memory of the size that `offsets` tells."""
    loops, names, stalls, ring, size = offsets(events)
    if len(memory) != size:
        raise ValueError(f"the memory has {len(memory)} bytes, not {size}")
    REGIONS.pack_into(
        memory,
        REGIONS_AT,
        *(loops, LOOP_SIZE, LOOPS),
        *(names, 1, NAMES_SIZE),
        *(stalls, STALL_SIZE, STALLS),
        *(ring, EVENT.size, events),
    )
    for at, number in ((CLOCK_AT, clock_ns), (STATE_AT, RECORDING), (NAMES_USED_AT, FIRST_NAME)):
        struct.pack_into("<q", memory, at, number)
    for at, text, most in (
        (WHORL_AT, whorl.encode(), 32),
        (PYTHON_AT, python.encode(), 32),
        (COMMAND_AT, command, COMMAND_SIZE),
    ):
        memory[at : at + min(len(text), most)] = text[:most]
    # Last, so that a reader never takes half a header for one.
    HEADER.pack_into(memory, 0, MAGIC, VERSION, 0, size, pid, started, boot[:36], namespace)
