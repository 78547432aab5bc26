/* Files whose content is in memory already: system calls that are newer than the headers of some systems. */
#ifndef WHORL_CORE_KERNEL_FILES_H
#define WHORL_CORE_KERNEL_FILES_H

#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437 /* the same everywhere */
#endif
#define WHORL_AT_FDCWD (-100)
#define WHORL_AT_EMPTY_PATH 0x1000
#define WHORL_AT_STATX_DONT_SYNC 0x4000
#define WHORL_RESOLVE_CACHED 0x20
#define WHORL_RWF_NOWAIT 0x8
#define WHORL_STATX_BASIC 0x203u /* type, mode and size */
#define WHORL_STATX_MNT_ID 0x1000u
#define WHORL_STATX_MNT_ID_UNIQUE 0x4000u
#define WHORL_STATX_ANY_MOUNT (WHORL_STATX_MNT_ID | WHORL_STATX_MNT_ID_UNIQUE)
/* The same on all machines but alpha, sparc and mips, where nothing is asked. */
#if defined(__x86_64__) || defined(__i386__) || defined(__riscv) || defined(__s390x__)
#define WHORL_O_NOFOLLOW 0400000
#elif defined(__aarch64__) || defined(__arm__) || defined(__powerpc__)
#define WHORL_O_NOFOLLOW 0100000
#endif
#define WHORL_O_PATH 010000000
#define WHORL_O_CLOEXEC 02000000
#define WHORL_O_NONBLOCK 04000

struct whorl_open_how {
    uint64_t flags, mode, resolve;
};

/* struct statx, as far as it is read. */
struct whorl_statx {
    uint32_t mask, block_size;
    uint64_t attributes;
    uint32_t links, user, group;
    uint16_t mode, spare;
    uint64_t inode, size, blocks, attributes_mask;
    uint64_t times[8];
    uint32_t device_numbers[4]; /* of the device that this is, and of the one it lies on */
    uint64_t mount, more[16];
};

/* Open a path if it can be looked up in memory. Python has no openat2, and no other call refuses to wait. */
static inline int whorl_openat2(const char *path, int for_reading, int follow) {
#if defined(SYS_statx) && defined(WHORL_O_NOFOLLOW)
    struct whorl_open_how how = {WHORL_O_CLOEXEC, 0, WHORL_RESOLVE_CACHED};
    how.flags |= for_reading ? WHORL_O_NONBLOCK : WHORL_O_PATH;
    how.flags |= follow ? 0 : WHORL_O_NOFOLLOW;
    return (int)syscall(SYS_openat2, WHORL_AT_FDCWD, path, &how, sizeof(how));
#else
    (void)path, (void)for_reading, (void)follow;
    errno = ENOSYS;
    return -1;
#endif
}

/* Ask for the status of an open file and the mount it lies on. Python's os.stat says nothing of mounts. */
static inline int whorl_statx(int fd, struct whorl_statx *status) {
#if defined(SYS_statx)
    return (int)syscall(SYS_statx, fd, "", WHORL_AT_EMPTY_PATH | WHORL_AT_STATX_DONT_SYNC,
                        WHORL_STATX_BASIC | WHORL_STATX_ANY_MOUNT, status);
#else
    (void)fd, (void)status;
    errno = ENOSYS;
    return -1;
#endif
}

/* Read what is in memory. Python's os.preadv raises an exception if nothing is. */
static inline Py_ssize_t whorl_preadv2(int fd, void *buffer, size_t size, int64_t offset) {
#if defined(SYS_preadv2)
    struct iovec vector = {buffer, size};
    return (Py_ssize_t)syscall(SYS_preadv2, fd, &vector, 1L, (long)offset, (long)(offset >> 32),
                               WHORL_RWF_NOWAIT);
#else
    (void)fd, (void)buffer, (void)size, (void)offset;
    errno = ENOSYS;
    return -1;
#endif
}

#endif
