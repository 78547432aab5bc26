from libc.stdint cimport int64_t, uint64_t

cimport cython

from whorl.aio.runners.host_driver cimport HostDriver, deadlines
from whorl.sim.chance.decisions cimport Decisions, Stream, mixed
from whorl.sim.files.epoll cimport Epoll
from whorl.sim.wire.clock cimport HostClock
from whorl.sim.wire.timeline cimport Timeline

cdef int NONE, GRID, EDGE
cdef int64_t MILLISECOND, NEVER, STANDSTILL, EDGE_SPAN
cdef Py_ssize_t EDGES
cdef int64_t CPU_STEPS, RANDOM_STEP, LOOK_TURNS, COLLECT_TURNS


cdef class HostTurns(HostClock):
    cdef public int64_t busy_until
    cdef public Stream cpu
    cdef public int64_t deadline
    cdef public HostDriver driver
    cdef public Epoll epoll
    cdef public bint is_dead
    cdef public bint is_paused
    cdef public object loop
    cdef readonly int model
    cdef public str name
    cdef public list pending_signals
    cdef readonly double rate

    cdef int64_t next_time(self) except? -1
    @cython.locals(rest=int64_t, over=int64_t)
    cdef object _plan(self)
    @cython.locals(model=int, step=int64_t)
    cdef int64_t _cpu_time(self, int64_t over) except? -1
    @cython.locals(ahead=int64_t)
    cdef int64_t _up_to_edge(self, int64_t over, int64_t step) except? -1
    @cython.locals(now=int64_t, ahead=int64_t, due=int64_t)
    cdef list _edges(self, int64_t over)
    @cython.locals(goes_on=bint)
    cdef object take_turn(self)


cdef class Turns:
    cdef int64_t _identities
    cdef int64_t _tasks
    cdef public list conditions
    cdef public object current
    cdef public Decisions decisions
    cdef public list findings
    cdef public uint64_t hash_base
    cdef public dict hosts
    cdef public int64_t idle_turns
    cdef public int64_t limit
    cdef public int64_t look_at
    cdef public object main
    cdef public list run_order
    cdef public Timeline timeline
    cdef public int64_t turns
    cdef public int64_t turns_limit
    cdef public double real_limit
    cdef public double until_real

    @cython.locals(timeline=Timeline, now=int64_t, due=int64_t, following=int64_t, host=HostTurns, ready=list)
    cdef bint _advance(self, int64_t until) except -1
    @cython.locals(timeline=Timeline)
    cdef object _pass_time(self, int64_t following)
    @cython.locals(host=HostTurns)
    cdef bint _is_awaited(self, int64_t due) except -1
    cdef object _turn(self, HostTurns host)
    cpdef object next_identity(self)
    cpdef object next_task(self)
    cdef object _count_turn(self)
