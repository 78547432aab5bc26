from libc.stdint cimport int64_t

cimport cython

from whorl.sim.wire.ports cimport PortTable
from whorl.sim.wire.timeline cimport Event, Timeline

cdef int64_t BOOT_NS, EPOCH_NS, FREE_LOOKS


cdef class HostClock:
    cdef public Timeline timeline
    cdef public int64_t spent
    cdef public int64_t look_ns
    cdef public int64_t _looks
    cdef public int64_t _skew
    cdef double _drift
    cdef public bint is_off
    cdef public object network
    cdef public PortTable tcp_ports
    cdef public PortTable udp_ports

    @cython.locals(elapsed=int64_t)
    cdef int64_t _clock_ns(self) except? -1
    cdef int64_t _look_ns(self) except? -1
    cdef int64_t time(self) except? -1
    cdef object post(self, int64_t delay, object act, tuple args)
    cdef object send(self, int64_t delay, Event event)
