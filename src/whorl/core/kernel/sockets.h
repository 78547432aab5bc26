/* Connections without an object of Python's socket. */
#ifndef WHORL_CORE_KERNEL_SOCKETS_H
#define WHORL_CORE_KERNEL_SOCKETS_H

#include <Python.h> /* first: it asks for GNU's names, as accept4 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Accept a connection that does not block. Python's accept makes a tuple and an address for each one. */
static inline int whorl_accept(int fd, struct sockaddr *address, socklen_t *length) {
    return accept4(fd, address, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Return a new stream socket that does not block. Python's call makes an object, and asks for its family. */
static inline int whorl_open_stream(int family, int protocol) {
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
}

/* Return the error that waits at a socket. Python's getsockopt is a method of a socket, and there is none. */
static inline int whorl_pending_error(int fd) {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

/* Send small packets at once. Python's setsockopt is a method of a socket, and there is none. */
static inline int whorl_no_delay(int fd) {
    int on = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

#endif
