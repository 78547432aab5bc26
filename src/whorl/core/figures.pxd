from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t

from whorl.core cimport limits, states
from whorl.core.threads cimport Mutex, lock, seen_number, unlock

cdef extern from "whorl/core/figures.h":
    int place_of "whorl_place_of"(int64_t number) noexcept
    void *new_block "whorl_new_block"(size_t size) noexcept
    void keep_block "whorl_keep_block"(void *block) noexcept

cdef enum:
    ROOM = 592


cdef struct Counters:
    seen_number bytes_in
    seen_number bytes_out
    seen_number reads
    seen_number writes
    seen_number timers_fired
    seen_number accepts
    seen_number connections_opened
    seen_number connections_closed
    seen_number errors_reported
    seen_number jobs_submitted
    seen_number jobs_begun
    seen_number jobs_ended


cdef struct Buckets:
    seen_number total
    seen_number most
    seen_number counts[ROOM]


# One block: a file that is mapped may take its place.
cdef struct Block:
    Counters counters
    Buckets histograms[5]


cdef class Figures:
    cdef Counters *counters
    cdef Counters *_first
    cdef Buckets *histograms
    cdef Block *_home  # the memory of their own while they lie elsewhere (`move_into`)
    cdef Mutex _moving[1]  # held while the figures move, jobs are counted, or other threads may be reading

    cpdef object count_error(self)
    cpdef object count_jobs(self, int64_t submitted, int64_t begun, int64_t ended)
    cdef object begin_histograms(self, int64_t alone)


cdef inline int copy_numbers(void *target, const void *source, size_t size) noexcept:
    # One after the other: others look at them.
    cdef size_t index
    for index in range(size // sizeof(int64_t)):
        (<seen_number *>target)[index] = (<seen_number *>source)[index]
    return 0


cdef inline Counters *first_counters(Figures figures) except NULL:
    figures._first = <Counters *>PyMem_RawCalloc(1, sizeof(Counters))
    if figures._first == NULL:
        raise MemoryError
    return figures._first


cdef inline Buckets *no_histograms() noexcept:
    return NULL


cdef inline int grow(Figures figures, int64_t alone) except -1:
    # Without memory there are no histograms yet. The first counters stay until the end: threads may add to them.
    cdef Block *block = <Block *>new_block(sizeof(Block))
    if block != NULL:
        lock(figures._moving)
        copy_numbers(&block.counters, figures.counters, sizeof(Counters))
        figures.counters = &block.counters
        block.histograms[states.BATCH].counts[1] = block.histograms[states.BATCH].total = -alone
        figures.histograms = &block.histograms[0]
        unlock(figures._moving)
    return 0


cdef inline int add_ones(Figures figures, int64_t count) except -1:
    cdef Buckets *buckets = figures.histograms
    if buckets != NULL and count > 0:
        buckets += states.BATCH
        buckets.counts[1] += count
        buckets.total += count
        if buckets.most < 1:
            buckets.most = 1
    return 0


cdef inline int lie_in(Figures figures, Block *place) except -1:
    lock(figures._moving)
    copy_numbers(place, figures.counters, sizeof(Block))
    figures.counters = &place.counters
    figures.histograms = &place.histograms[0]
    unlock(figures._moving)
    return 0


cdef inline int move_into(Figures figures, Block *place) except -1:
    # The own block stays, as to move back must not fail.
    if figures._home != NULL:
        raise RuntimeError("the loop is being recorded already")
    if figures.histograms == NULL:
        raise MemoryError
    figures._home = <Block *>figures.counters
    return lie_in(figures, place)


cdef inline int move_back(Figures figures) except -1:
    if figures._home != NULL:
        lie_in(figures, figures._home)
        figures._home = NULL
    return 0


cdef inline int release(Figures figures) except -1:
    if figures._home != NULL:
        figures.counters = &figures._home.counters
        figures._home = NULL
    if figures.counters != figures._first:
        keep_block(figures.counters)
    PyMem_RawFree(figures._first)
    figures.counters = figures._first = NULL
    figures.histograms = NULL
    return 0


cdef inline bint has_histograms(Figures figures) except -1:
    return figures.histograms != NULL


cdef inline bint are_made(Figures figures) except -1:
    # The same, for all threads.
    cdef bint answer
    lock(figures._moving)
    answer = figures.histograms != NULL
    unlock(figures._moving)
    return answer


cdef inline int note_in(Buckets *buckets, int64_t number) noexcept:
    if number < 0:
        number = 0
    buckets.counts[place_of(number)] += 1
    buckets.total += number
    if number > buckets.most:
        buckets.most = number
    return 0


cdef inline int note(Figures figures, int kind, int64_t number) except -1:
    if figures.histograms != NULL:
        note_in(figures.histograms + kind, number)
    return 0


cdef inline int note_away(Figures figures, int64_t away_ns, int64_t turns, int64_t alone) except -1:
    if figures.histograms == NULL and (away_ns >= limits.LONG_AWAY_NS or turns >= limits.TURNS_BEFORE_HISTOGRAMS):
        figures.begin_histograms(alone)
    return note(figures, states.AWAY, away_ns)


cdef inline int add_to_jobs(Figures figures, int64_t submitted, int64_t begun, int64_t ended) except -1:
    lock(figures._moving)
    figures.counters.jobs_submitted += submitted
    figures.counters.jobs_begun += begun
    figures.counters.jobs_ended += ended
    unlock(figures._moving)
    return 0


cdef inline dict counters_of(Figures figures):
    cdef Counters counters
    lock(figures._moving)
    copy_numbers(&counters, figures.counters, sizeof(Counters))
    unlock(figures._moving)
    return counters


cdef inline tuple histogram_of(Figures figures, int kind):
    cdef dict counts = {}
    cdef int place
    cdef Buckets buckets
    cdef bint found
    lock(figures._moving)
    found = figures.histograms != NULL
    if found:
        copy_numbers(&buckets, figures.histograms + kind, sizeof(Buckets))
    unlock(figures._moving)
    if not found:
        return 0, 0, counts
    for place in range(ROOM):
        if buckets.counts[place]:
            counts[place] = buckets.counts[place]
    return buckets.total, buckets.most, counts
