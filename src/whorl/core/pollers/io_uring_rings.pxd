from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from whorl.core.kernel.kernel cimport mask_with

cdef extern from "whorl/core/pollers/io_uring_rings.h":
    ctypedef struct whorl_answer:
        uint64_t tag
        int32_t result
    ctypedef struct whorl_ring:
        int fd
    int whorl_ring_new(whorl_ring **made) noexcept nogil
    void whorl_ring_free(whorl_ring *ring) noexcept nogil
    bint whorl_ring_is_shared(whorl_ring *ring) noexcept nogil
    int whorl_ring_watch(whorl_ring *ring, int fd, uint32_t mask, uint32_t generation) noexcept nogil
    int whorl_ring_end(whorl_ring *ring, int fd, uint32_t generation) noexcept nogil
    int whorl_ring_enter(whorl_ring *ring, unsigned int flags) noexcept nogil
    int whorl_ring_sleep(whorl_ring *ring, int64_t timeout_ns, uint64_t *signals) noexcept nogil
    bint whorl_ring_has_work(whorl_ring *ring) noexcept nogil
    bint whorl_ring_has_answer(whorl_ring *ring) noexcept nogil
    whorl_answer *whorl_ring_answer(whorl_ring *ring) noexcept nogil
    void whorl_ring_next(whorl_ring *ring) noexcept nogil
    int whorl_ring_know(whorl_ring *ring, int fd) noexcept nogil
    bint whorl_ring_knows(whorl_ring *ring, int fd) noexcept nogil

cdef extern from "<errno.h>" nogil:
    int EBADF
    int EALREADY


cdef class Ring:
    cdef whorl_ring *_ring

    cpdef int open(self) except? -65536
    cpdef object close(self)
    cpdef bint is_open(self) noexcept
    cpdef bint is_shared(self) noexcept
    cpdef int fileno(self) noexcept
    cpdef int know(self, int fd) noexcept
    cpdef bint knows(self, int fd) noexcept
    cpdef int watch(self, int fd, uint32_t mask, uint32_t generation) noexcept
    cpdef int end(self, int fd, uint32_t generation) noexcept
    cpdef int submit(self) noexcept
    cpdef int wait(self, int64_t timeout_ns, int blocked_signal) except? -65536
    cpdef bint has_work(self) noexcept
    cpdef bint has_answer(self) noexcept
    cpdef int fd(self) noexcept
    cpdef uint32_t generation(self) noexcept
    cpdef int result(self) noexcept
    cpdef object next(self)



cdef inline int set_up(Ring ring) noexcept:
    return -EALREADY if ring._ring != NULL else whorl_ring_new(&ring._ring)


cdef inline int tear_down(Ring ring) noexcept:
    whorl_ring_free(ring._ring)
    ring._ring = NULL
    return 0


cdef inline bint is_open(Ring ring) noexcept:
    return ring._ring != NULL


cdef inline bint is_shared(Ring ring) noexcept:
    return whorl_ring_is_shared(ring._ring)


cdef inline int ring_fd(Ring ring) noexcept:
    return ring._ring.fd if ring._ring != NULL else -1


cdef inline int know_file(Ring ring, int fd) noexcept:
    return whorl_ring_know(ring._ring, fd) if ring._ring != NULL else -EBADF


cdef inline bint knows_file(Ring ring, int fd) noexcept:
    return ring._ring != NULL and whorl_ring_knows(ring._ring, fd)


cdef inline int put_watch(Ring ring, int fd, uint32_t mask, uint32_t generation) noexcept:
    return whorl_ring_watch(ring._ring, fd, mask, generation) if ring._ring != NULL else -EBADF


cdef inline int put_end(Ring ring, int fd, uint32_t generation) noexcept:
    return whorl_ring_end(ring._ring, fd, generation) if ring._ring != NULL else -EBADF


cdef inline int enter(Ring ring) noexcept:
    # The flag to get events makes the kernel pass on answers that had no room.
    if ring._ring == NULL or whorl_ring_is_shared(ring._ring):
        return -EBADF
    return whorl_ring_enter(ring._ring, 1)


cdef inline int sleep(Ring ring, int64_t timeout_ns, int blocked_signal) except? -65536:
    cdef whorl_ring *state = ring._ring
    cdef uint64_t mask = 0
    cdef uint64_t *held = NULL
    cdef int code
    if state == NULL or whorl_ring_is_shared(state):
        return -EBADF
    if blocked_signal:
        mask = mask_with(blocked_signal)
        held = &mask
    with nogil:
        code = whorl_ring_sleep(state, timeout_ns, held)
    return code


cdef inline bint has_work(Ring ring) noexcept:
    return ring._ring != NULL and whorl_ring_has_work(ring._ring)


cdef inline bint has_answer(Ring ring) noexcept:
    return ring._ring != NULL and whorl_ring_has_answer(ring._ring)


cdef inline int answered_fd(Ring ring) noexcept:
    if ring._ring == NULL:
        return -1
    return <int><uint32_t>whorl_ring_answer(ring._ring).tag


cdef inline uint32_t answered_generation(Ring ring) noexcept:
    if ring._ring == NULL:
        return 0
    return <uint32_t>(whorl_ring_answer(ring._ring).tag >> 32)


cdef inline int answered_result(Ring ring) noexcept:
    if ring._ring == NULL:
        return -1
    return whorl_ring_answer(ring._ring).result


cdef inline int advance(Ring ring) noexcept:
    if ring._ring != NULL and whorl_ring_has_answer(ring._ring):
        whorl_ring_next(ring._ring)
    return 0
