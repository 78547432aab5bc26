from libc.stdint cimport int64_t

cdef extern from "whorl/core/threads.h":
    bint HAS_GIL "WHORL_HAS_GIL"
    ctypedef struct Mutex "whorl_mutex":
        pass
    void lock "whorl_lock"(Mutex *mutex) noexcept
    void unlock "whorl_unlock"(Mutex *mutex) noexcept
    void barrier "whorl_barrier"() noexcept
    ctypedef bint shared_flag "whorl_shared_int"
    ctypedef int shared_int "whorl_shared_int"
    ctypedef unsigned char shared_byte "whorl_shared_byte"
    ctypedef unsigned long shared_thread "whorl_shared_thread"
    ctypedef int64_t seen_number "whorl_seen_number"
    ctypedef Py_ssize_t seen_size "whorl_seen_size"
    ctypedef bint seen_flag "whorl_seen_int"
    int64_t next_number "whorl_next_number"(int64_t *last) noexcept
