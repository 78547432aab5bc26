from libc.errno cimport EAGAIN, EALREADY, EBADF, EEXIST, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, errno as c_errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
)

from whorl.core.kernel.kernel cimport (
    EFD_CLOEXEC, EPOLL_CLOEXEC, c_close, c_epoll_create, c_epoll_ctl, c_eventfd, c_syscall, epoll_event, mask_with
)

cdef extern from "<sys/mman.h>":
    enum: MADV_WIPEONFORK
    int madvise(void *memory, size_t size, int advice)

cdef extern from "<sys/epoll.h>":
    enum: EPOLL_CTL_ADD
    enum: EPOLL_CTL_DEL
    enum: EPOLLOUT

cdef extern from * nogil:
    enum: BYTE_ORDER "__BYTE_ORDER__"
    enum: BIG_ENDIAN "__ORDER_BIG_ENDIAN__"
    enum: ACQUIRE "__ATOMIC_ACQUIRE"
    enum: RELEASE "__ATOMIC_RELEASE"
    uint32_t atomic_load "__atomic_load_n"(uint32_t *place, int order)
    void atomic_store "__atomic_store_n"(uint32_t *place, uint32_t value, int order)

# From <linux/io_uring.h>: the kernel's interface, the same on all architectures.
cdef enum:
    SETUP = 425
    ENTER = 426
    POLL_ADD = 6
    POLL_REMOVE = 7
    CQ_SIZE = 0x8
    # Completions wait for the next system call instead of interrupting us: SUBMIT_ALL, COOP_TASKRUN and
    # TASKRUN_FLAG, since Linux 5.19.
    UNDISTURBED = 0x380
    # A single mapping, no dropped answers, polls of 32 bits, a sleep with a timeout: all since Linux 5.11.
    NEEDED = 0x143
    GET_EVENTS = 0x1
    EXT_ARG = 0x8
    OVERFLOW_OR_TASKRUN = 0x6
    ENTRIES_AT = 0x10000000
    ENTRIES = 512
    ANSWERS = 2048

cdef struct Entry:
    uint8_t operation, flags
    uint16_t priority
    int32_t fd
    uint64_t offset, address
    uint32_t length, events
    uint64_t tag
    uint64_t rest[3]

cdef struct Answer:
    uint64_t tag
    int32_t result
    uint32_t flags

cdef struct EntryOffsets:
    uint32_t head, tail, mask, size, flags, dropped, array
    uint32_t reserved[3]

cdef struct AnswerOffsets:
    uint32_t head, tail, mask, size, overflow, answers, flags
    uint32_t reserved[3]

cdef struct Parameters:
    uint32_t entries, answers, flags, cpu, idle, features, workers
    uint32_t reserved[3]
    EntryOffsets of_entries
    AnswerOffsets of_answers

cdef struct GetEventsArg:
    uint64_t signals
    uint32_t signals_size, unused
    uint64_t limit

cdef struct Queues:
    int fd
    int files  # an epoll: which files are known
    char *mark  # a page that is empty after a fork
    char *area
    size_t area_size
    Entry *entries
    size_t entries_size
    Answer *answers
    uint32_t *in_head
    uint32_t *in_tail
    uint32_t *in_flags
    uint32_t *out_head
    uint32_t *out_tail
    uint32_t in_size, in_next, out_mask, out_next


cdef class Ring:
    cdef Queues *_queues

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
    cdef int code
    if ring._queues != NULL:
        return -EALREADY
    ring._queues = <Queues *>calloc(1, sizeof(Queues))
    if ring._queues == NULL:
        return -ENOMEM
    code = open_queues(ring._queues)
    if code == 0:
        code = try_watch(ring)
    if code < 0:
        tear_down(ring)
    return code


cdef inline int open_queues(Queues *queues) noexcept:
    cdef Parameters told
    memset(&told, 0, sizeof(told))
    told.flags = CQ_SIZE | UNDISTURBED
    told.answers = ANSWERS
    queues.files = c_epoll_create(EPOLL_CLOEXEC)
    queues.fd = <int>c_syscall(SETUP, ENTRIES, &told)
    if queues.fd < 0 and c_errno == EINVAL:
        told.flags = CQ_SIZE
        queues.fd = <int>c_syscall(SETUP, ENTRIES, &told)
    if queues.fd < 0 or queues.files < 0:
        return -c_errno
    return map_queues(queues, &told) if told.features & NEEDED == NEEDED else -ENOSYS


cdef inline int map_queues(Queues *queues, Parameters *told) noexcept:
    # Map the memory of the queues, and note where their parts are.
    cdef EntryOffsets *entries = &told.of_entries
    cdef AnswerOffsets *answers = &told.of_answers
    cdef uint32_t index
    cdef uint32_t *array
    queues.area_size = max(
        entries.array + told.entries * sizeof(uint32_t), answers.answers + told.answers * sizeof(Answer)
    )
    queues.area = <char *>map_shared(queues.fd, queues.area_size, 0)
    queues.entries_size = told.entries * sizeof(Entry)
    queues.entries = <Entry *>map_shared(queues.fd, queues.entries_size, ENTRIES_AT)
    queues.mark = <char *>mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if queues.area == MAP_FAILED or queues.entries == MAP_FAILED or queues.mark == MAP_FAILED:
        return -ENOMEM
    if madvise(queues.mark, 1, MADV_WIPEONFORK) != 0:
        return -c_errno
    queues.mark[0] = 1
    queues.in_head = <uint32_t *>(queues.area + entries.head)
    queues.in_tail = <uint32_t *>(queues.area + entries.tail)
    queues.in_flags = <uint32_t *>(queues.area + entries.flags)
    queues.in_size = told.entries
    queues.out_head = <uint32_t *>(queues.area + answers.head)
    queues.out_tail = <uint32_t *>(queues.area + answers.tail)
    queues.out_mask = told.answers - 1
    queues.answers = <Answer *>(queues.area + answers.answers)
    array = <uint32_t *>(queues.area + entries.array)
    for index in range(told.entries):
        array[index] = index
    return 0


cdef inline void *map_shared(int fd, size_t size, int64_t offset) noexcept:
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset)


cdef inline int try_watch(Ring ring) noexcept:
    # Ask about a counter that can be written at once, which a working ring answers.
    cdef int code, counter = c_eventfd(0, EFD_CLOEXEC)
    if counter < 0:
        return -c_errno
    code = put_watch(ring, counter, EPOLLOUT, 0)
    if code == 0:
        code = enter(ring)
    c_close(counter)
    if code < 0:
        return code
    if not has_answer(ring) or answered_result(ring) != EPOLLOUT:
        return -EOPNOTSUPP
    return advance(ring)


cdef inline int tear_down(Ring ring) noexcept:
    # The system refuses, and does nothing, for memory that was not mapped and descriptors that were not
    # opened.
    cdef Queues *queues = ring._queues
    if queues != NULL:
        munmap(queues.entries, queues.entries_size)
        munmap(queues.area, queues.area_size)
        munmap(queues.mark, 1)
        c_close(queues.fd)
        c_close(queues.files)
        free(queues)
        ring._queues = NULL
    return 0


cdef inline bint is_open(Ring ring) noexcept:
    return ring._queues != NULL


cdef inline bint is_shared(Ring ring) noexcept:
    return ring._queues != NULL and ring._queues.mark[0] == 0


cdef inline int ring_fd(Ring ring) noexcept:
    return ring._queues.fd if ring._queues != NULL else -1


cdef inline int know_file(Ring ring, int fd) noexcept:
    # No thread waits on that epoll. It refuses a file that it has already.
    cdef epoll_event nothing
    if ring._queues == NULL:
        return -EBADF
    memset(&nothing, 0, sizeof(nothing))
    if c_epoll_ctl(ring._queues.files, EPOLL_CTL_ADD, fd, &nothing) == 0:
        return 0
    return 1 if c_errno == EEXIST else -c_errno


cdef inline bint knows_file(Ring ring, int fd) noexcept:
    cdef int code = know_file(ring, fd)
    if code == 0:
        c_epoll_ctl(ring._queues.files, EPOLL_CTL_DEL, fd, NULL)
    return code == 1


cdef inline uint32_t waiting(Queues *queues) noexcept nogil:
    # The number of entries that the kernel has not read.
    return queues.in_next - atomic_load(queues.in_head, ACQUIRE)


cdef inline int call_kernel(Queues *queues, unsigned int answers, unsigned int flags, GetEventsArg *argument) noexcept nogil:
    # Hand the entries over.
    cdef long code = c_syscall(ENTER, queues.fd, waiting(queues), answers, flags, argument, sizeof(GetEventsArg))
    return <int>code if code >= 0 else -c_errno


cdef inline int put(Ring ring, Entry *entry) noexcept:
    cdef Queues *queues = ring._queues
    cdef int code
    if queues == NULL or is_shared(ring):
        return -EBADF
    if waiting(queues) >= queues.in_size:
        code = call_kernel(queues, 0, 0, NULL)
        if waiting(queues) >= queues.in_size:
            return code if code < 0 else -EAGAIN
    queues.entries[queues.in_next & (queues.in_size - 1)] = entry[0]
    queues.in_next += 1
    atomic_store(queues.in_tail, queues.in_next, RELEASE)
    return 0


cdef inline uint64_t tag_of(int fd, uint32_t generation) noexcept:
    return <uint64_t>generation << 32 | <uint32_t>fd


cdef inline int put_watch(Ring ring, int fd, uint32_t mask, uint32_t generation) noexcept:
    cdef Entry entry
    memset(&entry, 0, sizeof(entry))
    entry.operation = POLL_ADD
    entry.fd = fd
    entry.events = mask if BYTE_ORDER != BIG_ENDIAN else mask << 16 | mask >> 16
    entry.tag = tag_of(fd, generation)
    return put(ring, &entry)


cdef inline int put_end(Ring ring, int fd, uint32_t generation) noexcept:
    cdef Entry entry
    memset(&entry, 0, sizeof(entry))
    entry.operation = POLL_REMOVE
    entry.fd = -1
    entry.address = tag_of(fd, generation)
    entry.tag = <uint64_t>-1  # no watch has it
    return put(ring, &entry)


cdef inline int enter(Ring ring) noexcept:
    # The flag makes the kernel pass on answers that had no room.
    if ring._queues == NULL or is_shared(ring):
        return -EBADF
    return call_kernel(ring._queues, 0, GET_EVENTS, NULL)


cdef inline int sleep(Ring ring, int64_t timeout_ns, int blocked_signal) except? -65536:
    cdef Queues *queues = ring._queues
    cdef int64_t[2] limit
    cdef uint64_t mask
    cdef GetEventsArg argument
    cdef int code
    if queues == NULL or is_shared(ring):
        return -EBADF
    memset(&argument, 0, sizeof(argument))
    if blocked_signal:
        mask = mask_with(blocked_signal)
        argument.signals = <uintptr_t>&mask
        argument.signals_size = sizeof(mask)
    if timeout_ns >= 0:
        limit[0] = timeout_ns // 1000000000
        limit[1] = timeout_ns % 1000000000
        argument.limit = <uintptr_t>limit
    with nogil:
        code = call_kernel(queues, 1, GET_EVENTS | EXT_ARG, &argument)
    return code


cdef inline bint has_work(Ring ring) noexcept:
    cdef Queues *queues = ring._queues
    return queues != NULL and (
        waiting(queues) != 0 or atomic_load(queues.in_flags, ACQUIRE) & OVERFLOW_OR_TASKRUN != 0
    )


cdef inline bint has_answer(Ring ring) noexcept:
    return ring._queues != NULL and ring._queues.out_next != atomic_load(ring._queues.out_tail, ACQUIRE)


cdef inline Answer *answer(Queues *queues) noexcept:
    return &queues.answers[queues.out_next & queues.out_mask]


cdef inline int answered_fd(Ring ring) noexcept:
    return <int><uint32_t>answer(ring._queues).tag if ring._queues != NULL else -1


cdef inline uint32_t answered_generation(Ring ring) noexcept:
    return <uint32_t>(answer(ring._queues).tag >> 32) if ring._queues != NULL else 0


cdef inline int answered_result(Ring ring) noexcept:
    return answer(ring._queues).result if ring._queues != NULL else -1


cdef inline int advance(Ring ring) noexcept:
    if has_answer(ring):
        ring._queues.out_next += 1
        atomic_store(ring._queues.out_head, ring._queues.out_next, RELEASE)
    return 0
