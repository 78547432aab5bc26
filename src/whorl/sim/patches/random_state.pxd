cdef extern from "whorl/sim/patches/random_state.h":
    bytes random_numbers "whorl_random_numbers"(object generator, Py_ssize_t size)
    void set_random_numbers "whorl_set_random_numbers"(object generator, bytes numbers) noexcept

cdef Py_ssize_t _SIZE
cdef object _GENERATOR
cdef int _BLOCK

cpdef object random_state()
cpdef object set_random_state(object state)
cpdef object words_drawn(object start)
