/* Load generator for TLS: many connections, one request outstanding on each, every echoed byte checked.
 *
 * usage: tls_load echo tls:PORT CONNECTIONS BYTES SECONDS WARM_UP_SECONDS [SERVER_PID]
 *
 * Prints one line of JSON, as load does; exits with 1 if anything went wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD = 262139, RECEIVE_BYTES = 64 * 1024, EVENTS = 256, MOST_LATENCIES = 1 << 22 };

struct connection {
    int fd;
    bool wants_write;
    SSL *tls;
    uint64_t id, message;
    const char *expected;      /* the window into the noise that is the message in flight */
    size_t sent, received;
    int64_t started_ns;
};

struct sched { int64_t run_ns, wait_ns; };

static size_t message_bytes;
static uint64_t connection_count;
static struct connection *connections;
static char *noise;
static char receive_buffer[RECEIVE_BYTES];
static int poller;
static bool counting;
static uint64_t requests, errors;
static uint32_t *latencies;
static size_t latency_count;

static void die(const char *what)
{
    fprintf(stderr, "tls_load: %s: %s\n", what, errno ? strerror(errno) : "");
    ERR_print_errors_fp(stderr);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void make_noise(void)
{
    uint64_t state = 88172645463325252;
    noise = malloc(PERIOD + message_bytes + 8);
    if (noise == NULL)
        die("malloc");
    for (size_t i = 0; i < PERIOD + message_bytes; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        noise[i] = (char)state;
    }
}

static void begin_message(struct connection *c)
{
    c->expected = noise + (c->id * 7919 + c->message * 104729) % PERIOD;
    c->sent = c->received = 0;
    c->started_ns = now_ns();
}

static void watch(struct connection *c, int operation, bool wants_write)
{
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event) < 0)
        die("epoll_ctl");
    c->wants_write = wants_write;
}

static void fail(struct connection *c, const char *what)
{
    if (errors++ < 5)
        fprintf(stderr, "tls_load: connection %lu, message %lu: %s\n", c->id, c->message, what);
    epoll_ctl(poller, EPOLL_CTL_DEL, c->fd, NULL);
}

static void send_some(struct connection *c)
{
    while (c->sent < message_bytes) {
        int size = SSL_write(c->tls, c->expected + c->sent, (int)(message_bytes - c->sent));
        if (size <= 0) {
            if (SSL_get_error(c->tls, size) != SSL_ERROR_WANT_WRITE)
                fail(c, "cannot send");
            else if (!c->wants_write)
                watch(c, EPOLL_CTL_MOD, true);
            return;
        }
        c->sent += (size_t)size;
    }
    if (c->wants_write)
        watch(c, EPOLL_CTL_MOD, false);
}

static void message_echoed(struct connection *c)
{
    if (counting) {
        int64_t took = now_ns() - c->started_ns;
        requests++;
        if (latency_count < MOST_LATENCIES)
            latencies[latency_count++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
    }
    c->message++;
    begin_message(c);
    send_some(c);
}

static void receive_some(struct connection *c)
{
    for (;;) {
        int size = SSL_read(c->tls, receive_buffer, RECEIVE_BYTES);
        if (size <= 0) {
            if (SSL_get_error(c->tls, size) != SSL_ERROR_WANT_READ)
                fail(c, "cannot receive");
            return;
        }
        if (c->received + (size_t)size > message_bytes ||
            memcmp(receive_buffer, c->expected + c->received, (size_t)size) != 0) {
            fail(c, "not what was sent");
            return;
        }
        c->received += (size_t)size;
        if (c->received == message_bytes) {
            message_echoed(c);
            return;            /* level-triggered: what else is there is reported again */
        }
    }
}

static void open_connection(struct connection *c, SSL_CTX *context, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->tls = SSL_new(context);
    SSL_set_fd(c->tls, c->fd);
    if (SSL_connect(c->tls) != 1)
        die("handshake");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, false);
}

static void run_until(int64_t deadline_ns)
{
    struct epoll_event events[EVENTS];
    while (now_ns() < deadline_ns && errors == 0) {
        int count = epoll_wait(poller, events, EVENTS, 10);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                send_some(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT)
                receive_some(c);
        }
    }
}

static struct sched read_sched(int pid)
{
    struct sched found = {-1, -1};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &found.run_ns, &found.wait_ns) != 2)
            found.run_ns = -1;
        fclose(file);
    }
    return found;
}

static void print_sched(const char *who, struct sched before, struct sched after)
{
    if (before.run_ns < 0 || after.run_ns < 0)
        printf(", \"%s_run_ns\": null, \"%s_wait_ns\": null", who, who);
    else
        printf(", \"%s_run_ns\": %ld, \"%s_wait_ns\": %ld", who, after.run_ns - before.run_ns, who,
               after.wait_ns - before.wait_ns);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_us(double share)
{
    return latency_count == 0 ? 0 : latencies[(size_t)(share * (double)(latency_count - 1))] / 1e3;
}

int main(int argc, char **argv)
{
    unsigned port;
    if (argc < 7 || strcmp(argv[1], "echo") != 0 || sscanf(argv[2], "tls:%u", &port) != 1) {
        fprintf(stderr, "usage: tls_load echo tls:PORT CONNECTIONS BYTES SECONDS WARM_UP_SECONDS [SERVER_PID]\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    connection_count = strtoul(argv[3], NULL, 10);
    message_bytes = strtoul(argv[4], NULL, 10);
    double seconds = strtod(argv[5], NULL), warm_up = strtod(argv[6], NULL);
    int server = argc > 7 ? atoi(argv[7]) : 0;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    connections = calloc(connection_count, sizeof *connections);
    latencies = malloc(MOST_LATENCIES * sizeof *latencies);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (context == NULL || connections == NULL || latencies == NULL || poller < 0)
        die("setup");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    make_noise();
    for (uint64_t i = 0; i < connection_count; i++) {
        connections[i].id = i;
        open_connection(&connections[i], context, (uint16_t)port);
    }
    for (uint64_t i = 0; i < connection_count; i++) {
        begin_message(&connections[i]);
        send_some(&connections[i]);
    }
    run_until(now_ns() + (int64_t)(warm_up * 1e9));
    struct sched server_before = read_sched(server), client_before = read_sched(getpid());
    int64_t began = now_ns();
    counting = true;
    run_until(began + (int64_t)(seconds * 1e9));
    double took = (double)(now_ns() - began) / 1e9;
    struct sched server_after = read_sched(server), client_after = read_sched(getpid());
    qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"requests\": %lu, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, "
           "\"errors\": %lu, \"lost\": 0", requests, took, percentile_us(0.5), percentile_us(0.99),
           percentile_us(0.999), errors);
    print_sched("server", server_before, server_after);
    print_sched("client", client_before, client_after);
    printf("}\n");
    return errors != 0;
}
