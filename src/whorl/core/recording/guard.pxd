cdef extern from "whorl/core/recording/guard.h":
    int guard_memory "whorl_guard"(object memory) except -1
    void unguard "whorl_unguard"(int place) noexcept


cdef class Guard:
    cdef int _place
