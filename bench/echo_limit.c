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
static void serve_datagrams(int fd)
{
    struct epoll_event event;
    watch(EPOLL_CTL_ADD, fd, EPOLLIN, NULL);
    for (;;) {
        epoll_wait(poller, &event, 1, -1);
        for (int i = 0; i < DATAGRAMS; i++) {
            struct sockaddr_in peer;
            socklen_t peer_bytes = sizeof peer;
            ssize_t n = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&peer, &peer_bytes);
            if (n < 0)
                break;
            sendto(fd, buffer, n, 0, (struct sockaddr *)&peer, peer_bytes);
        }
    }
}

static void serve_connections(int listener, int is_tcp)
{
    struct epoll_event events[EVENTS];
    watch(EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
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

int main(int argc, char **argv)
{
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    if (argc != 2) {
        fprintf(stderr, "usage: echo_limit tcp | udp | unix:PATH\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    poller = epoll_create1(EPOLL_CLOEXEC);
    int is_unix = strncmp(argv[1], "unix:", 5) == 0, is_udp = strcmp(argv[1], "udp") == 0;
    if (is_unix)
        strncpy(local.sun_path, argv[1] + 5, sizeof local.sun_path - 1);
    struct sockaddr *address = is_unix ? (struct sockaddr *)&local : (struct sockaddr *)&inet;
    socklen_t bytes = is_unix ? sizeof local : sizeof inet;
    int kind = (is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int fd = socket(address->sa_family, kind, 0);
    if (bind(fd, address, bytes) < 0 || getsockname(fd, address, &bytes) < 0)
        die("bind");
    if (is_unix)
        printf("READY %s\n", argv[1]);
    else
        printf("READY %s:%d\n", argv[1], ntohs(inet.sin_port));
    if (!is_udp && listen(fd, BACKLOG) < 0)
        die("listen");
    fflush(stdout);
    if (is_udp)
        serve_datagrams(fd);
    else
        serve_connections(fd, !is_unix);
}
