cdef extern from "whorl/core/shared_objects.h":
    bint is_counted_no_more "whorl_stop_counting"(object thing) noexcept


cpdef bint stop_counting(object thing) except -1
