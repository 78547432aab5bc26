from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_SetSlice
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject

from whorl.core cimport limits, states
from whorl.core.callback cimport fetch
from whorl.core.figures cimport Figures, note
from whorl.core.lists cimport append, empty, last_taken
from whorl.core.threads cimport HAS_GIL, seen_size
from whorl.core.timers.timed_callback cimport TimedCallback


cdef extern from "whorl/core/timers/heap.h":
    void leave_out "whorl_leave_out"(PyObject *timer) noexcept
    void take_in "whorl_take_in"(object timer) noexcept
    void answer_for_timers "whorl_answer_for_timers"(object heap) noexcept


cdef inline void leave_out_at(list timers, Py_ssize_t position) noexcept:
    if timers is not None and 0 <= position < PyList_GET_SIZE(timers):
        leave_out(PyList_GET_ITEM(timers, position))


cdef inline bint before(TimedCallback a, TimedCallback b) noexcept:
    if a._deadline_ns != b._deadline_ns:
        return a._deadline_ns < b._deadline_ns
    if a._seconds < b._seconds:
        return True
    if b._seconds < a._seconds:
        return False
    return a._number < b._number


cdef struct Place:
    int64_t deadline
    Py_ssize_t slot


cdef inline Place new_place(int64_t deadline, Py_ssize_t slot) noexcept:
    cdef Place place
    place.deadline = deadline
    place.slot = slot
    return place


cdef inline bint slot_before(list timers, Py_ssize_t a, Py_ssize_t b) noexcept:
    if timers is None or a >= PyList_GET_SIZE(timers) or b >= PyList_GET_SIZE(timers):
        return False  # The collector has cleared the list.
    return before(<TimedCallback>PyList_GET_ITEM(timers, a), <TimedCallback>PyList_GET_ITEM(timers, b))


cdef inline bint place_before(list timers, Place a, Place b) noexcept:
    return slot_before(timers, a.slot, b.slot) if a.deadline == b.deadline else a.deadline < b.deadline


cdef inline Py_ssize_t first_of_four(list timers, Place *places, Py_ssize_t position, Py_ssize_t size) noexcept:
    cdef Py_ssize_t first = position, second, other
    if position + 3 < size:  # two and two, with no branch that depends on the deadlines
        first += place_before(timers, places[position + 1], places[position])
        second = position + 2
        second += place_before(timers, places[position + 3], places[position + 2])
        return second if place_before(timers, places[second], places[first]) else first
    for other in range(position + 1, size):
        if place_before(timers, places[other], places[first]):
            first = other
    return first


cdef inline uint64_t in_order(int64_t deadline) noexcept:
    # Unsigned numbers in the same order; the difference of two never overflows.
    return <uint64_t>deadline ^ <uint64_t>INT64_MIN


cdef inline Place *sort_places(Place *source, Place *target, Py_ssize_t count) noexcept:
    # Sort by the deadlines, a digit of 8 bits after the other, from one memory to the other and back.
    cdef Py_ssize_t starts[256]
    cdef Py_ssize_t position, start, digit, shift = 0
    cdef uint64_t least = in_order(source[0].deadline), most = least
    for position in range(1, count):
        least = min(least, in_order(source[position].deadline))
        most = max(most, in_order(source[position].deadline))
    while shift < 64 and (most - least) >> shift != 0:
        for digit in range(256):
            starts[digit] = 0
        for position in range(count):
            starts[<uint8_t>((in_order(source[position].deadline) - least) >> shift)] += 1
        start = 0
        for digit in range(256):
            start += starts[digit]
            starts[digit] = start - starts[digit]
        for position in range(count):
            digit = <uint8_t>((in_order(source[position].deadline) - least) >> shift)
            target[starts[digit]] = source[position]
            starts[digit] += 1
        source, target = target, source
        shift += 8
    return source


cdef inline bint sort_equals(list timers, Place *places, Py_ssize_t count) noexcept:
    # Sort the timers that are due in one nanosecond; return False if more than a few are.
    cdef Py_ssize_t position, hole, first = 0
    cdef Place place
    for position in range(1, count):
        place = places[position]
        if place.deadline != places[first].deadline:
            first = position
        elif position - first >= 64:
            return False
        hole = position
        while hole > first and slot_before(timers, place.slot, places[hole - 1].slot):
            places[hole] = places[hole - 1]
            hole -= 1
        places[hole] = place
    return True


cdef inline bint append_sorted(TimerHeap heap, int64_t latest, list due) except -1:
    cdef Py_ssize_t position, count = 0
    cdef Place *memory
    cdef Place *found
    cdef bint is_sorted = False
    for position in range(heap._entries):
        count += heap._places[position].deadline <= latest
    if count == 0:
        return False
    memory = <Place *>PyMem_Malloc(2 * count * sizeof(Place))
    if memory == NULL:
        return False
    count = 0
    for position in range(heap._entries):
        if heap._places[position].deadline <= latest:
            memory[count] = heap._places[position]
            count += 1
    found = sort_places(memory, memory + count, count)
    try:
        is_sorted = sort_equals(heap._timers, found, count)
        if is_sorted:
            for position in range(count):
                fetch(heap._timers, found[min(position + limits.ENTRIES_AHEAD, count - 1)].slot)
                due.append(heap._timers[found[position].slot])
    finally:
        PyMem_Free(memory)
    return is_sorted


cdef inline int replace(list line, Py_ssize_t first, Py_ssize_t end, list by) except -1:
    return PyList_SetSlice(line, first, end, by)


cdef inline int reserve_capacity(TimerHeap heap, Py_ssize_t capacity) except -1:
    cdef Py_ssize_t slot
    cdef Place *places = <Place *>PyMem_Realloc(heap._places, capacity * sizeof(Place))
    if places != NULL:
        heap._places = places
        heap._capacity = capacity
    elif capacity > heap._capacity:
        raise MemoryError
    for slot in range(heap._entries, heap._capacity):
        heap._places[slot].slot = slot
    return 0


cdef inline int show_count(TimerHeap heap) noexcept:
    # Without the GIL, other threads do not look at the line, which others may take the place of.
    if not HAS_GIL and heap._line is not None:
        heap._seen_count = heap._entries + PyList_GET_SIZE(heap._line) - heap._first
    return 0


cdef inline Place *no_places(TimerHeap heap) noexcept:
    PyMem_Free(heap._places)
    return NULL


cdef class TimerHeap:
    cdef list _timers
    cdef Place *_places
    cdef readonly Py_ssize_t _entries
    cdef Py_ssize_t _capacity
    cdef list _line
    cdef Py_ssize_t _first
    cdef readonly Py_ssize_t _cancelled
    cdef readonly Py_ssize_t _keep_alive_count
    cdef int64_t _numbers
    cdef Py_ssize_t _latest
    cdef seen_size _seen_count

    cdef Py_ssize_t count(self) except -1
    cdef Py_ssize_t seen_count(self) except -1
    cdef object clear(self)
    @cython.locals(line=list, size=Py_ssize_t, last=TimedCallback)
    cdef object push(self, TimedCallback timer)
    @cython.locals(position=Py_ssize_t, slot=Py_ssize_t)
    cdef object _push_on_heap(self, TimedCallback timer)
    @cython.locals(timers=list, places="Place *", parent=Py_ssize_t)
    cdef void _sift_up(self, Py_ssize_t top, Py_ssize_t position, Place place) noexcept
    @cython.locals(timers=list, places="Place *", size=Py_ssize_t, position=Py_ssize_t, child=Py_ssize_t)
    cdef void _sift_down(self, Py_ssize_t top, Place place) noexcept
    @cython.locals(timer=TimedCallback)
    cdef TimedCallback _next(self)
    @cython.locals(line=list, top=TimedCallback, first=TimedCallback)
    cdef TimedCallback _earliest(self)
    @cython.locals(line=list, first=Py_ssize_t)
    cdef object _take(self, TimedCallback timer)
    @cython.locals(places="Place *", slot=Py_ssize_t, last=Py_ssize_t, moved=Place)
    cdef object _pop(self)
    @cython.locals(
        timers=list, former=list, timer=TimedCallback, position=Py_ssize_t, slot=Py_ssize_t, size=Py_ssize_t
    )
    cdef object _pack(self)
    @cython.locals(position=Py_ssize_t)
    cdef void _heapify(self) noexcept
    @cython.locals(timer=TimedCallback)
    cdef int64_t next_deadline(self) except? -1
    @cython.locals(timer=TimedCallback, latest=int64_t, former=Py_ssize_t, waiting=Py_ssize_t)
    cdef object take_due(self, int64_t now_ns, list into, Figures figures, int64_t since)
    @cython.locals(
        due=list, merged=list, line=list, end=Py_ssize_t, index=Py_ssize_t, count=Py_ssize_t,
        position=Py_ssize_t, timer=TimedCallback
    )
    cdef object _sort_due(self, int64_t latest)
    @cython.locals(places="Place *", entries=Py_ssize_t, kept=Py_ssize_t, position=Py_ssize_t, place=Place)
    cdef object _forget_due(self, int64_t latest)
    @cython.locals(line=list, size=Py_ssize_t)
    cdef object note_cancelled(self, TimedCallback timer)
    @cython.locals(line=list, size=Py_ssize_t, last=TimedCallback)
    cdef object _shorten_line(self)
    @cython.locals(line=list, former=list, timer=TimedCallback, position=Py_ssize_t)
    cdef object _sweep(self)
