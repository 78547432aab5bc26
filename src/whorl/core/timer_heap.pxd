from libc.stdint cimport int64_t

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc

from whorl.core.timer cimport TimedCallback

cdef int64_t NEVER_NS
cdef Py_ssize_t LEAST_PLACES
cdef Py_ssize_t LINE_GAP
cdef Py_ssize_t SWEEP_MIN_CANCELLED
cdef Py_ssize_t SWEEP_FRACTION


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
        return False  # The collector has cleared it.
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


cdef inline int make_room(TimerHeap heap, Py_ssize_t room) except -1:
    cdef Py_ssize_t slot
    cdef Place *places = <Place *>PyMem_Realloc(heap._places, room * sizeof(Place))
    if places != NULL:
        heap._places = places
        heap._room = room
    elif room > heap._room:
        raise MemoryError
    for slot in range(heap._entries, heap._room):
        heap._places[slot].slot = slot
    return 0


cdef inline Place *no_places(TimerHeap heap) noexcept:
    PyMem_Free(heap._places)
    return NULL


cdef class TimerHeap:
    cdef list _timers
    cdef Place *_places
    cdef readonly Py_ssize_t _entries
    cdef Py_ssize_t _room
    cdef list _line
    cdef Py_ssize_t _first
    cdef readonly Py_ssize_t _cancelled
    cdef readonly Py_ssize_t _keepers
    cdef int64_t _numbers

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
    @cython.locals(timer=TimedCallback)
    cdef int64_t next_deadline(self) except? -1
    @cython.locals(timer=TimedCallback)
    cdef object take_due(self, int64_t now_ns, list into)
    @cython.locals(line=list, size=Py_ssize_t)
    cdef object note_cancelled(self, TimedCallback timer)
    @cython.locals(line=list, size=Py_ssize_t, last=TimedCallback)
    cdef object _shorten_line(self)
    @cython.locals(line=list, former=list, timer=TimedCallback, position=Py_ssize_t)
    cdef object _sweep(self)
