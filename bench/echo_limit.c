/* The limit: an echo server that does nothing but the system calls an echo needs.
 *
 * usage: echo_limit tcp | udp | unix:PATH
 *
 * Prints "READY ADDRESS" and serves until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 2048, RECEIVE_BYTES = 256 * 1024, EVENTS = 256, DATAGRAMS = 32 };

struct peer {
    int fd;
    char *unsent;              /* what the socket did not take; while there is some, nothing more is read */
    size_t unsent_bytes;
};

static int poller;
static char buffer[RECEIVE_BYTES];

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void watch(int operation, int fd, uint32_t events, struct peer *peer)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};
    if (epoll_ctl(poller, operation, fd, &event) < 0)
        die("epoll_ctl");
}

static void accept_all(int listener, int is_tcp)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct peer *peer = calloc(1, sizeof *peer);
        peer->fd = fd;
        if (is_tcp)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(EPOLL_CTL_ADD, fd, EPOLLIN, peer);
    }
}

static void hang_up(struct peer *peer)
{
    close(peer->fd);
    free(peer->unsent);
    free(peer);
}

/* Returns how much was taken, or -1 when the peer is gone. */
static ssize_t try_send(struct peer *peer, const char *data, size_t bytes)
{
    ssize_t n = send(peer->fd, data, bytes, MSG_NOSIGNAL);
    return n < 0 && errno == EAGAIN ? 0 : n;
}

static void echo(struct peer *peer)
{
    ssize_t received = recv(peer->fd, buffer, sizeof buffer, 0);
    if (received < 0 && errno == EAGAIN)
        return;
    ssize_t sent = received > 0 ? try_send(peer, buffer, received) : -1;
    if (sent < 0) {
        hang_up(peer);
    } else if (sent < received) {
        peer->unsent_bytes = received - sent;
        peer->unsent = malloc(peer->unsent_bytes);
        memcpy(peer->unsent, buffer + sent, peer->unsent_bytes);
        watch(EPOLL_CTL_MOD, peer->fd, EPOLLOUT, peer);
    }
}

static void send_rest(struct peer *peer)
{
    ssize_t sent = try_send(peer, peer->unsent, peer->unsent_bytes);
    if (sent < 0) {
        hang_up(peer);
        return;
    }
    peer->unsent_bytes -= sent;
    memmove(peer->unsent, peer->unsent + sent, peer->unsent_bytes);
    if (peer->unsent_bytes == 0) {
        free(peer->unsent);
        peer->unsent = NULL;
        watch(EPOLL_CTL_MOD, peer->fd, EPOLLIN, peer);
    }
}

/* One call for each datagram received, and one for each sent. */
static void serve_udp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
    socklen_t bytes = sizeof address;
    struct epoll_event event = {.events = EPOLLIN};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, bytes) < 0)
        die("bind");
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
    printf("READY udp:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        epoll_wait(poller, &event, 1, -1);
        for (int i = 0; i < DATAGRAMS; i++) {
            socklen_t peer_bytes = sizeof peer;
            ssize_t n = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&peer, &peer_bytes);
            if (n < 0)
                break;
            sendto(fd, buffer, n, 0, (struct sockaddr *)&peer, peer_bytes);
        }
    }
}

static int listen_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, bytes) < 0 || listen(fd, BACKLOG) < 0)
        die("listen");
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    printf("READY tcp:%d\n", ntohs(address.sin_port));
    return fd;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
        die("listen");
    printf("READY unix:%s\n", path);
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS];
    int is_tcp = argc > 1 && strcmp(argv[1], "tcp") == 0;
    int is_udp = argc > 1 && strcmp(argv[1], "udp") == 0;
    if (!is_tcp && !is_udp && (argc < 2 || strncmp(argv[1], "unix:", 5) != 0)) {
        fprintf(stderr, "usage: echo_limit tcp | udp | unix:PATH\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (is_udp)
        serve_udp();
    int listener = is_tcp ? listen_tcp() : listen_unix(argv[1] + 5);
    watch(EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct peer *peer = events[i].data.ptr;
            if (!peer)
                accept_all(listener, is_tcp);
            else if (peer->unsent)
                send_rest(peer);
            else
                echo(peer);
        }
    }
}
