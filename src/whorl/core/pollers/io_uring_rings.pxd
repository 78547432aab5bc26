from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from whorl.core.kernel.kernel cimport mask_with

cdef extern from *:
    """
    #ifndef WHORL_RING
    #define WHORL_RING
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>

    /* From <linux/io_uring.h>: the kernel's interface, the same on all architectures. */
    #define WHORL_SETUP 425
    #define WHORL_ENTER 426
    #define WHORL_POLL_ADD 6
    #define WHORL_POLL_REMOVE 7
    #define WHORL_CQ_SIZE (1u << 3)
    #define WHORL_SUBMIT_ALL (1u << 7)
    #define WHORL_COOP_TASKRUN (1u << 8)
    #define WHORL_TASKRUN_FLAG (1u << 9)
    /* One mapping; answers are never dropped; polls of 32 bits; a sleep with a timeout: Linux 5.11. */
    #define WHORL_NEEDED ((1u << 0) | (1u << 1) | (1u << 6) | (1u << 8))
    #define WHORL_GET_EVENTS (1u << 0)
    #define WHORL_EXT_ARG (1u << 3)
    #define WHORL_OVERFLOW_OR_TASKRUN ((1u << 1) | (1u << 2))
    #define WHORL_ENTRIES_AT 0x10000000
    #define WHORL_ENTRIES 512
    #define WHORL_ANSWERS 2048
    #define WHORL_NO_WATCH UINT64_MAX

    typedef struct {
        uint8_t operation, flags;
        uint16_t priority;
        int32_t fd;
        uint64_t offset, address;
        uint32_t length, events;
        uint64_t tag, rest[3];
    } whorl_entry;

    typedef struct {
        uint64_t tag;
        int32_t result;
        uint32_t flags;
    } whorl_answer;

    typedef struct {
        uint32_t entries, answers, flags, cpu, idle, features, workers, reserved[3];
        struct { uint32_t head, tail, mask, size, flags, dropped, array, reserved; uint64_t address; } in;
        struct { uint32_t head, tail, mask, size, overflow, answers, flags, reserved; uint64_t address; } out;
    } whorl_parameters;

    typedef struct { int64_t seconds, nanoseconds; } whorl_time;

    typedef struct {
        uint64_t signals;
        uint32_t signals_size, unused;
        uint64_t limit;
    } whorl_wait;

    typedef struct {
        int fd;
        char *area;
        size_t area_size;
        whorl_entry *entries;
        size_t entries_size;
        uint32_t *in_head, *in_tail, *in_flags, in_size, in_next;
        uint32_t *out_head, *out_tail, out_mask, out_next;
        whorl_answer *answers;
        char *mark; /* a page that is empty after a fork */
        int files; /* an epoll: which files are known */
    } whorl_ring;

    static inline uint32_t whorl_load(uint32_t *place) {
        return __atomic_load_n(place, __ATOMIC_ACQUIRE);
    }

    static inline void whorl_store(uint32_t *place, uint32_t value) {
        __atomic_store_n(place, value, __ATOMIC_RELEASE);
    }

    static inline void *whorl_map(int fd, size_t size, off_t offset) {
        void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
        return area == MAP_FAILED ? NULL : area;
    }

    static inline void whorl_ring_free(whorl_ring *ring) {
        if (ring == NULL)
            return;
        if (ring->entries != NULL)
            munmap(ring->entries, ring->entries_size);
        if (ring->area != NULL)
            munmap(ring->area, ring->area_size);
        if (ring->mark != NULL)
            munmap(ring->mark, 1);
        if (ring->fd >= 0)
            close(ring->fd);
        if (ring->files >= 0)
            close(ring->files);
        free(ring);
    }

    static inline int whorl_ring_is_shared(whorl_ring *ring) {
        return ring != NULL && *(volatile char *)ring->mark == 0;
    }

    static inline uint32_t whorl_ring_waiting(whorl_ring *ring) {
        return ring->in_next - whorl_load(ring->in_head);
    }

    static inline int whorl_ring_enter(whorl_ring *ring, unsigned int flags) {
        long code = syscall(WHORL_ENTER, ring->fd, whorl_ring_waiting(ring), 0, flags, NULL, (size_t)0);
        return code < 0 ? -errno : (int)code;
    }

    static inline int whorl_ring_put(whorl_ring *ring, whorl_entry *entry) {
        if (whorl_ring_is_shared(ring))
            return -EBADF;
        if (whorl_ring_waiting(ring) >= ring->in_size) {
            int code = whorl_ring_enter(ring, 0);
            if (whorl_ring_waiting(ring) >= ring->in_size)
                return code < 0 ? code : -EAGAIN;
        }
        ring->entries[ring->in_next & (ring->in_size - 1)] = *entry;
        whorl_store(ring->in_tail, ++ring->in_next);
        return 0;
    }

    static inline uint64_t whorl_tag(int fd, uint32_t generation) {
        return ((uint64_t)generation << 32) | (uint32_t)fd;
    }

    static inline int whorl_ring_watch(whorl_ring *ring, int fd, uint32_t mask, uint32_t generation) {
        whorl_entry entry;
        memset(&entry, 0, sizeof(entry));
        entry.operation = WHORL_POLL_ADD;
        entry.fd = fd;
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        mask = (mask << 16) | (mask >> 16);
    #endif
        entry.events = mask;
        entry.tag = whorl_tag(fd, generation);
        return whorl_ring_put(ring, &entry);
    }

    static inline int whorl_ring_end(whorl_ring *ring, int fd, uint32_t generation) {
        whorl_entry entry;
        memset(&entry, 0, sizeof(entry));
        entry.operation = WHORL_POLL_REMOVE;
        entry.fd = -1;
        entry.address = whorl_tag(fd, generation);
        entry.tag = WHORL_NO_WATCH;
        return whorl_ring_put(ring, &entry);
    }

    static inline int whorl_ring_sleep(whorl_ring *ring, int64_t timeout_ns, uint64_t *signals) {
        whorl_time limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        whorl_wait wait;
        memset(&wait, 0, sizeof(wait));
        wait.signals = (uint64_t)(uintptr_t)signals;
        wait.signals_size = signals == NULL ? 0 : 8;
        wait.limit = timeout_ns < 0 ? 0 : (uint64_t)(uintptr_t)&limit;
        long code = syscall(WHORL_ENTER, ring->fd, whorl_ring_waiting(ring), 1,
                            WHORL_GET_EVENTS | WHORL_EXT_ARG, &wait, sizeof(wait));
        return code < 0 ? -errno : (int)code;
    }

    static inline int whorl_ring_has_work(whorl_ring *ring) {
        return whorl_ring_waiting(ring) != 0 || (whorl_load(ring->in_flags) & WHORL_OVERFLOW_OR_TASKRUN) != 0;
    }

    static inline int whorl_ring_has_answer(whorl_ring *ring) {
        return ring->out_next != whorl_load(ring->out_tail);
    }

    static inline whorl_answer *whorl_ring_answer(whorl_ring *ring) {
        return &ring->answers[ring->out_next & ring->out_mask];
    }

    static inline void whorl_ring_next(whorl_ring *ring) {
        whorl_store(ring->out_head, ++ring->out_next);
    }

    /* A counter can be written at once: what is asked about it has an answer, if anything has. */
    static inline int whorl_ring_try(whorl_ring *ring) {
        int code, counter = eventfd(0, EFD_CLOEXEC);
        if (counter < 0)
            return -errno;
        code = whorl_ring_watch(ring, counter, EPOLLOUT, 0);
        if (code == 0)
            code = whorl_ring_enter(ring, WHORL_GET_EVENTS);
        close(counter);
        if (code < 0)
            return code;
        if (!whorl_ring_has_answer(ring) || whorl_ring_answer(ring)->result != EPOLLOUT)
            return -EOPNOTSUPP;
        whorl_ring_next(ring);
        return 0;
    }

    static inline int whorl_ring_map(whorl_ring *ring, whorl_parameters *told) {
        size_t of_entries = told->in.array + told->entries * sizeof(uint32_t);
        size_t of_answers = told->out.answers + told->answers * sizeof(whorl_answer);
        uint32_t index;
        ring->area_size = of_entries > of_answers ? of_entries : of_answers;
        ring->area = (char *)whorl_map(ring->fd, ring->area_size, 0);
        ring->entries_size = told->entries * sizeof(whorl_entry);
        ring->entries = (whorl_entry *)whorl_map(ring->fd, ring->entries_size, WHORL_ENTRIES_AT);
        ring->mark = (char *)mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (ring->mark == (char *)MAP_FAILED)
            ring->mark = NULL;
        if (ring->area == NULL || ring->entries == NULL || ring->mark == NULL)
            return -ENOMEM;
        if (madvise(ring->mark, 1, MADV_WIPEONFORK) != 0)
            return -errno;
        *ring->mark = 1;
        ring->in_head = (uint32_t *)(ring->area + told->in.head);
        ring->in_tail = (uint32_t *)(ring->area + told->in.tail);
        ring->in_flags = (uint32_t *)(ring->area + told->in.flags);
        ring->in_size = told->entries;
        ring->out_head = (uint32_t *)(ring->area + told->out.head);
        ring->out_tail = (uint32_t *)(ring->area + told->out.tail);
        ring->out_mask = told->answers - 1;
        ring->answers = (whorl_answer *)(ring->area + told->out.answers);
        for (index = 0; index < told->entries; index++)
            ((uint32_t *)(ring->area + told->in.array))[index] = index;
        return 0;
    }

    static inline int whorl_ring_new(whorl_ring **made) {
        whorl_parameters told;
        whorl_ring *ring = (whorl_ring *)calloc(1, sizeof(whorl_ring));
        /* Completions wait for the next system call instead of interrupting us: Linux 5.19. */
        uint32_t flags = WHORL_CQ_SIZE | WHORL_SUBMIT_ALL | WHORL_COOP_TASKRUN | WHORL_TASKRUN_FLAG;
        int code;
        if (ring == NULL)
            return -ENOMEM;
        for (;;) {
            memset(&told, 0, sizeof(told));
            told.flags = flags;
            told.answers = WHORL_ANSWERS;
            ring->fd = (int)syscall(WHORL_SETUP, WHORL_ENTRIES, &told);
            if (ring->fd >= 0 || errno != EINVAL || flags == WHORL_CQ_SIZE)
                break;
            flags = WHORL_CQ_SIZE;
        }
        ring->files = ring->fd < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
        if (ring->fd < 0 || ring->files < 0)
            code = -errno;
        else if ((told.features & WHORL_NEEDED) != WHORL_NEEDED)
            code = -ENOSYS;
        else
            code = whorl_ring_map(ring, &told);
        if (code == 0)
            code = whorl_ring_try(ring);
        if (code < 0) {
            whorl_ring_free(ring);
            return code;
        }
        *made = ring;
        return 0;
    }

    /* An epoll that nobody waits for knows open files, by their numbers: it refuses one that it has already. */
    static inline int whorl_ring_know(whorl_ring *ring, int fd) {
        struct epoll_event nothing;
        memset(&nothing, 0, sizeof(nothing));
        if (epoll_ctl(ring->files, EPOLL_CTL_ADD, fd, &nothing) == 0)
            return 0;
        return errno == EEXIST ? 1 : -errno;
    }

    static inline int whorl_ring_knows(whorl_ring *ring, int fd) {
        int code = whorl_ring_know(ring, fd);
        if (code == 0)
            epoll_ctl(ring->files, EPOLL_CTL_DEL, fd, NULL);
        return code == 1;
    }
    #endif
    """
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
    # To get events makes the kernel pass on answers that had no room.
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
