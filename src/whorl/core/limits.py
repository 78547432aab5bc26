"""Every bound of the machine, with its reason."""

from __future__ import annotations

from typing import Final

#: How many events one poll hands over. More wait in the kernel for the next turn, so a burst
#: never keeps timers waiting for longer than this many events take.
EVENTS_PER_POLL: Final = 1024

#: How often the pending queue is emptied after a poll before the loop goes on to its other
#: phases: enough for chains of completions, not enough to starve timers (libuv: 8).
PENDING_ROUNDS: Final = 8

#: While there is work, polls are skipped once this many in a row have found nothing: what a program can
#: observe of its own turns (a few `sleep(0)` until data is there) stays as if every turn polled.
EMPTY_POLLS_BEFORE_SKIP: Final = 32

#: Stands for such a row, for a single turn: the last poll slept until another thread ended that, and
#: brought nothing else.
WOKEN_BY_THREAD: Final = EMPTY_POLLS_BEFORE_SKIP + 1

#: At most this many turns in a row then do without a poll, which halves the cost of a short turn ...
TURNS_WITHOUT_POLL: Final = 15

#: ... and none that begins later than this after the last poll, in nanoseconds: a tenth of what other
#: processes add to a latency anyway.
LONGEST_WITHOUT_POLL_NS: Final = 50_000

#: The longest sleep, in nanoseconds (24 hours): far deadlines fit every kernel interface.
LONGEST_POLL_NS: Final = 24 * 3600 * 1_000_000_000

#: For how long a sleep may be put off by asking for events, in nanoseconds: a second, which nobody wants.
LONGEST_SPIN_NS: Final = 1_000_000_000

#: A deadline that never falls due: infinity, and all that int64 nanoseconds cannot hold.
NEVER_NS: Final = (1 << 63) - 1

#: The most one read takes from the kernel, in bytes.
READ_SIZE: Final = 256 * 1024

#: From this size on what a read brings is received into an object of its own, in bytes: copying it out of
#: memory that is used again would take longer than making the object.
LONG_READ: Final = 8 * 1024

#: A message from this size to below LONG_READ, in bytes, takes the memory of the one before if nobody has it
#: any more. For shorter ones CPython's own allocator is quick.
SHORTEST_AGAIN: Final = 480

#: The most such memory that a kernel object keeps, in bytes, for as many messages as a turn may bring to
#: readers before the first of them is read.
MOST_KEPT: Final = 256 * 1024

#: The most that one such read takes, in bytes: what the processor's cache still holds when it is sent on.
LONGEST_READ: Final = 128 * 1024

#: The same for a stream reader, in bytes, which keeps what it was given for longer: two such blocks that are
#: freed together are not yet given back to the system by the C library (man 3 mallopt, M_TRIM_THRESHOLD).
LONGEST_FED: Final = 64 * 1024

#: Room for any datagram of UDP, in bytes; those of other sockets may have READ_SIZE.
DATAGRAM_ROOM: Final = 64 * 1024

#: The block in which the datagrams of one call are received, in bytes: 16 of UDP.
DATAGRAM_BLOCK: Final = 16 * DATAGRAM_ROOM

#: The most that one read takes of what inotify has noted, in bytes: some 2,000 changes. Others get their
#: turn before the next read.
CHANGES_SIZE: Final = 64 * 1024

#: From this size a send lets other threads run while the kernel copies, in bytes.
RELEASE_GIL_SIZE: Final = 64 * 1024

#: The most that one message with descriptors brings, in bytes.
MESSAGE_SIZE: Final = 64 * 1024

#: The most descriptors that one message may carry (Linux: SCM_MAX_FD).
DESCRIPTORS_PER_MESSAGE: Final = 253

#: How much of a file one call sends, in bytes, so that other threads need not wait for all of it.
SENDFILE_SIZE: Final = 1 << 30

#: How much of a file is read at once where the kernel cannot send it, to a socket and to a transport
#: (asyncio: the same).
SENDFILE_READ_SIZE: Final = 256 * 1024
SENDFILE_WRITE_SIZE: Final = 16 * 1024

#: How many buffers one gathering write may carry (Linux: UIO_MAXIOV).
WRITE_VECTORS: Final = 64

#: Cancelled timers are swept out of the heap when there are more than this many of them ...
SWEEP_MIN_CANCELLED: Final = 100

#: ... and they are more than one in this many of all timers.
SWEEP_FRACTION: Final = 2

#: Empty places at the beginning of a line of timers are given back when they are at least so many.
LINE_GAP: Final = 64

#: For so many timers a heap makes room at first, and so much it keeps: 4 KiB.
LEAST_PLACES: Final = 256

#: Those that are due are sorted, all at once, when more than this many have been taken out of the heap ...
SORT_MIN_DUE: Final = 64

#: ... and they are more than one in this many of those that wait: looking for them takes a look at each.
SORT_FRACTION: Final = 32

#: So many entries before it is needed the memory of one is asked for, where many are run one after the other:
#: timers lie in memory in the order in which they were made, not in that in which they fall due.
ENTRIES_AHEAD: Final = 8

#: How many threads the pool has unless WHORL_THREADPOOL_SIZE says otherwise (libuv: 4).
THREADPOOL_SIZE: Final = 4

#: The most threads it may have (libuv: 1024).
THREADPOOL_MAX_SIZE: Final = 1024

#: How many connections a listener accepts in one go before others get their turn.
ACCEPTS_PER_EVENT: Final = 128

#: How long a listener rests when descriptors or memory ran out, in nanoseconds (asyncio: 1 s).
ACCEPT_REST_NS: Final = 1_000_000_000

#: How many callbacks that have run are kept for the next ones: a burst's worth, 1.6 MiB after one of so many.
#: What a burst makes anew, the collector looks at again and again.
SPARE_CALLBACKS: Final = 16384

#: How many writes that are over are kept for the next ones: one for each connection of a busy server.
SPARE_WRITES: Final = 1024

#: A loop that collects holds no larger write than this, in bytes: of larger ones the system call is no large
#: part.
SMALL_WRITE: Final = 4 * 1024

#: So much is held back at most for one connection, in bytes ...
MOST_HELD: Final = 16 * 1024

#: ... and until a callback ends, or writes again, so many ticks after the first write that is held. A tick is
#: a nanosecond at most.
LONGEST_HELD_TICKS: Final = 1_000_000

#: How many sends one writable event may make before other handles get their turn.
WRITES_PER_EVENT: Final = 16

#: How many datagrams one readable event may bring before other handles get their turn (libuv: 32).
DATAGRAMS_PER_EVENT: Final = 16

#: How many attempts a task's wait for a socket makes in one go before others get their turn.
ATTEMPTS_PER_EVENT: Final = 16

#: How many events a socket may have while nobody waits for it before it is no longer watched.
IDLE_EVENTS: Final = 8

#: Chunks of a stream that are shorter than this are put together, in bytes, so that a peer who sends
#: single bytes fills no list.
SHORT_CHUNK: Final = 512

#: How much of a file in memory is read without a thread, in bytes: copying it takes some 10 microseconds.
READ_NOW_SIZE: Final = 64 * 1024

#: How much of a file one step of a copy moves where the kernel cannot do it, in bytes.
COPY_SIZE: Final = 64 * 1024

#: How many buffers one read or write of a file may carry (Linux: UIO_MAXIOV).
FILE_VECTORS: Final = 1024

#: How often a temporary name is tried again when somebody else has it (glibc: 238328).
TEMPORARY_NAMES: Final = 10_000

#: How much an open file of the asyncio face reads at once, and keeps before it writes, in bytes: a trip to a
#: thread costs as much as copying this.
FILE_BUFFER: Final = 64 * 1024

#: How many answers about numeric addresses are remembered.
PLAIN_ANSWERS: Final = 256
