cimport cython

from whorl.core.loop.loop cimport Loop


cdef class Follower:
    cdef Loop _loop
    cdef object _future
    cdef object _source


cpdef object follow(object loop, object source)
@cython.locals(follower=Follower)
cpdef object link(object loop, object future, object source)
