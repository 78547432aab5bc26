/* Addresses of sockets as text and as the kernel's structures. */
#ifndef WHORL_CORE_KERNEL_SOCKET_ADDRESSES_H
#define WHORL_CORE_KERNEL_SOCKET_ADDRESSES_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define WHORL_PATH_AT ((unsigned int)offsetof(struct sockaddr_un, sun_path))
#define WHORL_PATH_SIZE ((Py_ssize_t)sizeof(((struct sockaddr_un *)0)->sun_path))

/* Write the text of an IPv4 address; return its length. Python's inet_ntop takes several times as long. */
static inline int whorl_show_ipv4(uint32_t network_order, char *text) {
    const unsigned char *byte = (const unsigned char *)&network_order;
    char *end = text;
    int i;
    for (i = 0; i < 4; i++) {
        unsigned int value = byte[i];
        if (value >= 100)
            *end++ = (char)('0' + value / 100);
        if (value >= 10)
            *end++ = (char)('0' + value / 10 % 10);
        *end++ = (char)('0' + value % 10);
        *end++ = '.';
    }
    *--end = 0;
    return (int)(end - text);
}

/* Return where the path of a Unix address stands. Python has no such structures. */
static inline char *whorl_path_of(struct sockaddr_storage *address) {
    return ((struct sockaddr_un *)address)->sun_path;
}

#endif
