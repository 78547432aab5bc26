from libc.stdint cimport int64_t

cimport cython


cdef class Event:
    cdef int64_t number
    cdef int64_t time

    cdef object happen(self)
    cdef bint comes_before(self, Event other) noexcept


cdef class Call(Event):
    cdef object _act
    cdef tuple _args


cdef class Timeline:
    cdef public int64_t now
    cdef int64_t _number
    cdef list _events

    @cython.locals(events=list, place=Py_ssize_t, above=Py_ssize_t, parent=Event)
    cdef object add(self, int64_t time, Event event)
    @cython.locals(
        events=list, size=Py_ssize_t, place=Py_ssize_t, below=Py_ssize_t, last=Event, following=Event, other=Event
    )
    cdef Event _take(self)
    cpdef object post(self, int64_t time, object act, tuple args)
    @cython.locals(first=Event)
    cpdef int64_t next_time(self) except? -1
    @cython.locals(event=Event)
    cdef list times(self, int64_t after, int64_t until)
    @cython.locals(events=list, first=Event)
    cpdef object happen(self)
