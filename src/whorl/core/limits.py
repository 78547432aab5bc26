"""Every bound of the machine, with its reason."""

from __future__ import annotations

from typing import Final

#: The number of events that one poll hands over. More events wait in the kernel for the next turn, so a
#: burst never keeps timers waiting for longer than this many events take.
EVENTS_PER_POLL: Final = 1024

#: The number of times that the pending queue is emptied after a poll, before the other phases.
#: It is enough for chains of completions, and not enough to starve timers (libuv: 8).
PENDING_ROUNDS: Final = 8

#: While there is work, the loop skips polls once this many in a row have found nothing. A program that
#: takes only a few turns (a few `sleep(0)` until data is there) sees every turn poll.
EMPTY_POLLS_BEFORE_SKIP: Final = 32

#: At most this many turns in a row then skip their poll, which halves the cost of a short turn ...
TURNS_WITHOUT_POLL: Final = 15

#: ... and no turn skips it that begins later than this after the last poll, in nanoseconds. Other processes
#: add ten times as much to a latency anyway.
LONGEST_WITHOUT_POLL_NS: Final = 50_000

#: One turn in so many has its callbacks timed. A prime number: no rhythm of a program keeps step with it.
SAMPLED_TURNS: Final = 61

#: A loop keeps histograms from this turn on, or from its first sleep on. Many loops run a few turns only.
TURNS_BEFORE_HISTOGRAMS: Final = 64

#: A loop that was away from its poll for so long keeps histograms at once, in nanoseconds.
LONG_AWAY_NS: Final = 1_000_000

#: The longest sleep, in nanoseconds (24 hours): far deadlines fit every kernel interface.
LONGEST_POLL_NS: Final = 24 * 3600 * 1_000_000_000

#: The longest spin before a sleep, in nanoseconds: a second, which is more than any program wants.
LONGEST_SPIN_NS: Final = 1_000_000_000

#: A deadline that never falls due: infinity, and all that int64 nanoseconds cannot hold.
NEVER_NS: Final = (1 << 63) - 1

#: The most one read takes from the kernel, in bytes.
READ_SIZE: Final = 256 * 1024

#: From this size on, in bytes, a read receives into an object of its own. Copying the data out of reused
#: memory would take longer than making the object.
LONG_READ: Final = 8 * 1024

#: A message from this size to below LONG_READ, in bytes, reuses the memory of an earlier one that has no
#: other reference. For shorter messages CPython's own allocator is quick.
SHORTEST_REUSED: Final = 480

#: The most memory for messages that a kernel object keeps, in bytes. It is enough for the messages that one
#: turn may bring to readers before the first of them is read.
MOST_KEPT: Final = 256 * 1024

#: The most that one long read takes, in bytes: the processor's cache still holds so much when it is sent on.
LONGEST_READ: Final = 128 * 1024

#: The same for a stream reader, in bytes, which keeps its data for longer. The C library does not yet give
#: two such blocks back to the system when they are freed together (man 3 mallopt, M_TRIM_THRESHOLD).
LONGEST_FED: Final = 64 * 1024

#: Room for any datagram of UDP, in bytes; a datagram of another kind of socket may have READ_SIZE.
DATAGRAM_SIZE: Final = 64 * 1024

#: The block in which the datagrams of one call are received, in bytes: 16 of UDP.
DATAGRAM_BLOCK: Final = 16 * DATAGRAM_SIZE

#: The most that one read of inotify takes, in bytes: some 2,000 changes. Other handles get their turn
#: before the next read.
CHANGES_SIZE: Final = 64 * 1024

#: From this size a send lets other threads run while the kernel copies, in bytes.
RELEASE_GIL_SIZE: Final = 64 * 1024

#: The most that one message with descriptors brings, in bytes.
MESSAGE_SIZE: Final = 64 * 1024

#: The most descriptors that one message may carry (Linux: SCM_MAX_FD).
DESCRIPTORS_PER_MESSAGE: Final = 253

#: The most of a file that one call sends, in bytes, so that other threads need not wait for all of it.
SENDFILE_SIZE: Final = 1 << 30

#: The most of a file that is read at once if the kernel cannot send it. The two are for a socket and for a
#: transport (asyncio: the same).
SENDFILE_READ_SIZE: Final = 256 * 1024
SENDFILE_WRITE_SIZE: Final = 16 * 1024

#: The most buffers that one gathering write carries (Linux: UIO_MAXIOV).
WRITE_VECTORS: Final = 64

#: The lines of one `writelines` are joined if they are at most so many bytes, ...
JOINED_LINES: Final = 4 * 1024

#: ... and so many more for each line. To copy them takes less time than the kernel needs for one piece more.
JOINED_FOR_EACH: Final = 1024

#: Longer ones are handed to the kernel as they are. This is one record of TLS, too.
MOST_JOINED: Final = 16 * 1024

#: The heap sweeps cancelled timers out when there are more than this many of them ...
SWEEP_MIN_CANCELLED: Final = 100

#: ... and they are more than one in this many of all timers.
SWEEP_FRACTION: Final = 2

#: A line of timers gives the empty places at its beginning back when there are at least so many.
LINE_GAP: Final = 64

#: The number of timers for which a heap has room at first and always: 4 KiB.
LEAST_PLACES: Final = 256

#: The heap sorts all due timers at once when more than this many have been taken out of it ...
SORT_MIN_DUE: Final = 64

#: ... and they are more than one in this many of the waiting timers: finding the due ones reads all of them.
SORT_FRACTION: Final = 32

#: A batch prefetches the memory of the entry that comes so many places later. Timers lie in memory in the
#: order in which they were made, not in the order in which they fall due.
ENTRIES_AHEAD: Final = 8

#: The number of threads in the pool, unless WHORL_THREADPOOL_SIZE sets another (libuv: 4).
THREADPOOL_SIZE: Final = 4

#: The most threads that the pool may have (libuv: 1024).
THREADPOOL_MAX_SIZE: Final = 1024

#: The number of connections that a listener accepts in one go before other handles get their turn.
ACCEPTS_PER_EVENT: Final = 128

#: The pause of a listener after an error that lasts, such as no descriptors, in nanoseconds (asyncio: 1 s).
ACCEPT_RETRY_DELAY_NS: Final = 1_000_000_000

#: The longest sleep of a poller that the kernel refused a watch for want of memory, in nanoseconds.
WATCH_RETRY_NS: Final = 50_000_000

#: The most callbacks on the freelist: enough for a burst, and 1.6 MiB after a burst of so many.
#: The collector looks again and again at the callbacks that a burst makes anew.
CALLBACK_FREELIST_SIZE: Final = 16384

#: The same without the GIL, for each thread that runs a loop: its freelist is new for each run.
THREAD_FREELIST_SIZE: Final = 1024

#: The most write requests on the freelist: one for each connection of a busy server.
WRITE_FREELIST_SIZE: Final = 1024

#: The largest write that the kernel is asked to hold, in bytes. A packet is only a small part of the cost of
#: a larger write.
SMALL_WRITE: Final = 4 * 1024

#: The longest time that a collecting loop lets writes wait, in ticks after the first held write. Then they
#: leave when a callback ends. A tick is a nanosecond at most.
LONGEST_HELD_TICKS: Final = 1_000_000

#: The number of sends that one writable event may make before other handles get their turn.
WRITES_PER_EVENT: Final = 16

#: The number of datagrams that one readable event may bring before other handles get their turn (libuv: 32).
DATAGRAMS_PER_EVENT: Final = 16

#: The number of attempts that a task's wait for a socket makes in one go before others get their turn.
ATTEMPTS_PER_EVENT: Final = 16

#: The number of events that a socket may have while no task waits for it, before its watch ends.
IDLE_EVENTS: Final = 8

#: A stream joins chunks that are shorter than this, in bytes, so that a peer cannot fill the list with
#: single bytes.
SHORT_CHUNK: Final = 512

#: The most of a file in memory that is read without a thread, in bytes: copying takes some 10 microseconds.
READ_NOW_SIZE: Final = 64 * 1024

#: The most of a file that one step of a copy moves if the kernel cannot copy, in bytes.
COPY_SIZE: Final = 64 * 1024

#: The most buffers that one read or write of a file may carry (Linux: UIO_MAXIOV).
FILE_VECTORS: Final = 1024

#: The number of names that are tried for a temporary file if earlier ones are taken (glibc: 238328).
TEMPORARY_NAMES: Final = 10_000

#: The size of an open file's buffer for reads and for writes (asyncio face), in bytes. A trip to a thread
#: costs as much as copying this.
FILE_BUFFER: Final = 64 * 1024

#: The number of answers about numeric addresses that are remembered.
NUMERIC_ANSWERS: Final = 256
