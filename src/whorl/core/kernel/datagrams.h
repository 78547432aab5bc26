/* Many datagrams by one system call. */
#ifndef WHORL_CORE_KERNEL_DATAGRAMS_H
#define WHORL_CORE_KERNEL_DATAGRAMS_H

#include <Python.h> /* first: it asks for GNU's names, as of struct mmsghdr */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Receive up to `count` datagrams. Python's socket has no such method; the C library's may be a loop. */
static inline int whorl_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
    return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, NULL);
}

/* Send up to `count` datagrams. Python's socket has no such method; the C library's may be a loop. */
static inline int whorl_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
    return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

#endif
