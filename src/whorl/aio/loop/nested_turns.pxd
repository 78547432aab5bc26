cdef object _leave(object loop)
cdef object _come_back(tuple former)
