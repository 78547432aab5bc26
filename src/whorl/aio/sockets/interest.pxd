cimport cython

from whorl.aio.sockets cimport states
from whorl.core cimport states as events

cdef int CALLBACKS, READS, WRITES, READABLE_EDGES


@cython.locals(edge=bint, wanted=int)
cpdef int interest(int kind, int waiting, int former, bint has_edges) except -1
