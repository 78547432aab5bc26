from libc.stdint cimport int64_t

cimport cython

from whorl.sim.files.file cimport File
from whorl.sim.wire.clock cimport HostClock
from whorl.sim.wire.line cimport Line
from whorl.sim.wire.timeline cimport Event


cdef class Flow:
    cdef int64_t _active
    cdef bint _is_forgotten

    cpdef bint passes(self, int64_t now, int64_t idle) except -1


cdef class Arrival(Event):
    cdef Channel _channel
    cdef int64_t _number
    cdef bytes _packet


cdef class Channel:
    cdef Flow _flow
    cdef dict _held
    cdef bytearray _more
    cdef int64_t _landed
    cdef int64_t _last
    cdef dict _shown
    cdef int64_t _retries
    cdef int64_t _sent
    cdef int64_t _since
    cdef readonly bytearray arrived
    cdef readonly int64_t capacity
    cdef public int64_t closed_at
    cdef readonly bint end_sent
    cdef readonly bint ended
    cdef readonly int64_t in_flight
    cdef public Line line
    cdef public File receiver
    cdef public bint receiver_lost
    cdef public bint refuses
    cdef public File sender
    cdef public bint sender_lost
    cdef public bint holds_more
    cdef public bint was_full

    cpdef int64_t room(self) except? -1
    cpdef object send(self, bytes data)
    cpdef object push(self)
    cpdef object _push_late(self, int64_t sent)
    cpdef object drop_more(self)
    cpdef object send_end(self)
    @cython.locals(number=int64_t, line=Line)
    cdef object _travel(self, bytes packet)
    @cython.locals(line=Line, machine=HostClock, now=int64_t, time=int64_t, size=Py_ssize_t)
    cpdef object _depart(self, int64_t number, bytes packet)
    @cython.locals(line=Line, is_cut=bint)
    cdef object _reach(self, int64_t number, bytes packet)
    cdef object _hold(self, int64_t number, bytes packet)
    @cython.locals(idle=int64_t, flow=Flow, machine=HostClock)
    cdef bint _is_lost(self, Line line) except -1
    @cython.locals(machine=HostClock)
    cdef object _show(self, Line line, str kind, int64_t size, int64_t took)
    cdef bint _is_receiver_off(self) except -1
    cdef HostClock _machine(self)
    @cython.locals(receiver=File)
    cdef object _land(self, bytes packet)
    @cython.locals(arrived=bytearray, data=bytes)
    cpdef bytes take(self, int64_t limit)
    @cython.locals(sender=object)
    cdef object _refuse(self)
