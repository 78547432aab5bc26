from libc.stdint cimport int64_t

cimport cython

from whorl.core.timer cimport TimedCallback

cdef int64_t NEVER_NS
cdef Py_ssize_t LINE_GAP
cdef Py_ssize_t SWEEP_MIN_CANCELLED
cdef Py_ssize_t SWEEP_FRACTION


cdef inline bint before(TimedCallback a, TimedCallback b) except -1:
    if a._deadline_ns != b._deadline_ns:
        return a._deadline_ns < b._deadline_ns
    if a._seconds < b._seconds:
        return True
    if b._seconds < a._seconds:
        return False
    return a._number < b._number


@cython.locals(kept=list, position=Py_ssize_t, timer=TimedCallback)
cdef list uncancelled(list entries, Py_ssize_t first)


cdef class TimerHeap:
    cdef list _entries
    cdef list _line
    cdef Py_ssize_t _first
    cdef readonly Py_ssize_t _cancelled
    cdef readonly Py_ssize_t _keepers
    cdef int64_t _numbers

    @cython.locals(line=list, size=Py_ssize_t, last=TimedCallback)
    cdef object push(self, TimedCallback timer)
    @cython.locals(heap=list, position=Py_ssize_t, parent=Py_ssize_t, above=TimedCallback)
    cdef object _push_on_heap(self, TimedCallback timer)
    @cython.locals(timer=TimedCallback)
    cdef TimedCallback _next(self)
    @cython.locals(heap=list, line=list, top=TimedCallback, first=TimedCallback)
    cdef TimedCallback _earliest(self)
    @cython.locals(line=list, first=Py_ssize_t)
    cdef object _take(self, TimedCallback timer)
    @cython.locals(heap=list)
    cdef object _pop(self)
    @cython.locals(heap=list, size=Py_ssize_t, child=Py_ssize_t, timer=TimedCallback, below=TimedCallback,
                   right=TimedCallback)
    cdef object _sift_down(self, Py_ssize_t position)
    @cython.locals(timer=TimedCallback)
    cdef int64_t next_deadline(self) except? -1
    @cython.locals(timer=TimedCallback)
    cdef object take_due(self, int64_t now_ns, list into)
    @cython.locals(line=list, size=Py_ssize_t)
    cdef object note_cancelled(self, TimedCallback timer)
    @cython.locals(line=list, size=Py_ssize_t, last=TimedCallback)
    cdef object _shorten_line(self)
    @cython.locals(position=Py_ssize_t)
    cdef object _sweep(self)
    cdef object clear(self)
