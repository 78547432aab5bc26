/* The rings of io_uring: entries that the kernel reads, and answers that it writes. */
#ifndef WHORL_CORE_POLLERS_IO_URING_RINGS_H
#define WHORL_CORE_POLLERS_IO_URING_RINGS_H

#include <Python.h> /* first: it asks for GNU's names */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From <linux/io_uring.h>: the kernel's interface, the same on all architectures. */
#define WHORL_SETUP 425
#define WHORL_ENTER 426
#define WHORL_POLL_ADD 6
#define WHORL_POLL_REMOVE 7
#define WHORL_CQ_SIZE (1u << 3)
#define WHORL_SUBMIT_ALL (1u << 7)
#define WHORL_COOP_TASKRUN (1u << 8)
#define WHORL_TASKRUN_FLAG (1u << 9)
/* The needed features: a single mapping, no dropped answers, polls of 32 bits, a sleep with a timeout (Linux
   5.11). */
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
    struct {
        uint32_t head, tail, mask, size, flags, dropped, array, reserved;
        uint64_t address;
    } in;
    struct {
        uint32_t head, tail, mask, size, overflow, answers, flags, reserved;
        uint64_t address;
    } out;
} whorl_parameters;

typedef struct {
    int64_t seconds, nanoseconds;
} whorl_time;

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

/* Read a number that the kernel writes. Python has no order between reads of shared memory. */
static inline uint32_t whorl_load(uint32_t *place) {
    return __atomic_load_n(place, __ATOMIC_ACQUIRE);
}

/* Write a number that the kernel reads. Python has no order between writes to shared memory. */
static inline void whorl_store(uint32_t *place, uint32_t value) {
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
}

/* Map a part of the ring. Python's mmap hides its address. */
static inline void *whorl_map(int fd, size_t size, off_t offset) {
    void *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
    return area == MAP_FAILED ? NULL : area;
}

/* Unmap and close a ring. Python does not know its memory. */
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

/* Return whether the ring is the parent's. Python cannot read its page, which is empty after a fork. */
static inline int whorl_ring_is_shared(whorl_ring *ring) {
    return ring != NULL && *(volatile char *)ring->mark == 0;
}

/* Return how many entries the kernel has not read. It writes that number where Python cannot read. */
static inline uint32_t whorl_ring_waiting(whorl_ring *ring) {
    return ring->in_next - whorl_load(ring->in_head);
}

/* Hand the entries to the kernel. Python has no io_uring_enter. */
static inline int whorl_ring_enter(whorl_ring *ring, unsigned int flags) {
    long code = syscall(WHORL_ENTER, ring->fd, whorl_ring_waiting(ring), 0, flags, NULL, (size_t)0);
    return code < 0 ? -errno : (int)code;
}

/* Add an entry. The kernel reads it in memory where Python cannot write. */
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

/* Return the number by which the answers about a watch are known. Python would make an object of it. */
static inline uint64_t whorl_tag(int fd, uint32_t generation) {
    return ((uint64_t)generation << 32) | (uint32_t)fd;
}

/* Ask for events of a descriptor. Python has no such structures. */
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

/* End a watch. Python has no such structures. */
static inline int whorl_ring_end(whorl_ring *ring, int fd, uint32_t generation) {
    whorl_entry entry;
    memset(&entry, 0, sizeof(entry));
    entry.operation = WHORL_POLL_REMOVE;
    entry.fd = -1;
    entry.address = whorl_tag(fd, generation);
    entry.tag = WHORL_NO_WATCH;
    return whorl_ring_put(ring, &entry);
}

/* Hand the entries to the kernel and wait for an answer. Python has no io_uring_enter. */
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

/* Return whether the kernel is to be called. It says so in memory that Python cannot read. */
static inline int whorl_ring_has_work(whorl_ring *ring) {
    return whorl_ring_waiting(ring) != 0 || (whorl_load(ring->in_flags) & WHORL_OVERFLOW_OR_TASKRUN) != 0;
}

/* Return whether there is an answer. It is in memory that Python cannot read. */
static inline int whorl_ring_has_answer(whorl_ring *ring) {
    return ring->out_next != whorl_load(ring->out_tail);
}

/* Return the first answer. It is in memory that Python cannot read. */
static inline whorl_answer *whorl_ring_answer(whorl_ring *ring) {
    return &ring->answers[ring->out_next & ring->out_mask];
}

/* Drop the first answer. The kernel reads how far we are where Python cannot write. */
static inline void whorl_ring_next(whorl_ring *ring) {
    whorl_store(ring->out_head, ++ring->out_next);
}

/* Ask about a counter that can be written at once, which a working ring answers. Python has no rings. */
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

/* Map the ring and note where its parts are. Python has no pointers. */
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

/* Make a ring; return 0 or a negative error. Python has no io_uring_setup. */
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

/* Note an open file in an epoll on which nobody waits; return 1 if that epoll has the file already.
   Python's epoll raises for that, and makes an exception. */
static inline int whorl_ring_know(whorl_ring *ring, int fd) {
    struct epoll_event nothing;
    memset(&nothing, 0, sizeof(nothing));
    if (epoll_ctl(ring->files, EPOLL_CTL_ADD, fd, &nothing) == 0)
        return 0;
    return errno == EEXIST ? 1 : -errno;
}

/* Return whether an open file is known. Python's epoll would raise to say so. */
static inline int whorl_ring_knows(whorl_ring *ring, int fd) {
    int code = whorl_ring_know(ring, fd);
    if (code == 0)
        epoll_ctl(ring->files, EPOLL_CTL_DEL, fd, NULL);
    return code == 1;
}

#endif
