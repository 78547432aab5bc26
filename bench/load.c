/* Load generator: many connections, one request outstanding on each, every echoed byte checked.
 *
 * usage: load MODE ADDRESS CONNECTIONS BYTES SECONDS WARM_UP_SECONDS SERVER_PID
 *
 *   MODE      echo   a message, its echo, the next message, on connections that stay
 *             churn  connect, one message, its echo, half close, the server's close, and again
 *             http   GET /NUMBER, a reply with the number alone, and again; BYTES do not matter
 *   ADDRESS   tcp:PORT or udp:PORT on the loopback, or unix:PATH; compiled with TLS, tls:PORT
 *
 * Prints one line of JSON; exits with 1 if anything went wrong. With datagrams and TLS there is no MODE but echo.
 *
 * Every message is a window into one block of noise. The connection and the number of the message decide where the
 * window begins. So sending needs no filling, and checking is one memcmp. A byte of another connection, of another
 * message or of another place in the message is found.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
#endif

enum {
    PERIOD = 262139,           /* windows into the noise; a prime, so that windows of one connection do not repeat early */
    RECEIVE_BYTES = 256 * 1024,
    EVENTS = 256,
    GRACE_SECONDS = 3,         /* the time for replies outstanding at the end, before they count as lost */
    SOURCES = 200,             /* loopback addresses that churn connects from: one alone runs out of ports */
    MOST_LATENCIES = 1 << 22,
    NUMBER_BYTES = 16,         /* http: of the number in a request */
    REPLY_BYTES = 2048,        /* http: that a reply has at most, with its headers */
};

enum mode { ECHO, CHURN, HTTP };
enum state { TALKING, ENDING, DONE };

struct connection {
    int fd;
    enum state state;
    bool wants_write;
    uint64_t id;               /* churn: a new one for every connect */
    uint64_t message;
    const char *expected;      /* the message in flight: a window into the noise, or `request` */
    size_t sent, received;
    char request[96], reply[REPLY_BYTES + 1];  /* http */
    int64_t started_ns;
#ifdef TLS
    SSL *tls;
#endif
};

static enum mode mode;
static struct sockaddr_storage address;
static socklen_t address_bytes;
static int socket_kind = SOCK_STREAM;
static size_t message_bytes;
static uint64_t connection_count;

static struct connection *connections;
static char *noise;
static char receive_buffer[RECEIVE_BYTES];
static int poller;
static bool stopping;          /* the time is up: outstanding replies are awaited, no new request begins */
static uint64_t open_count;    /* connections that are not DONE */
static uint64_t next_id;
static uint64_t requests, errors;
static uint32_t latencies[MOST_LATENCIES];
static size_t latency_count;

static void die(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int64_t time_ns(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) < 0 ? -1 : now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t now_ns(void)
{
    return time_ns(CLOCK_MONOTONIC);
}

/* ---- bytes: as they are, or by TLS ---- */

#ifdef TLS
static SSL_CTX *context;

static void secure(struct connection *c)
{
    c->tls = SSL_new(context);
    SSL_set_fd(c->tls, c->fd);
    if (SSL_connect(c->tls) != 1)
        die("handshake");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
}

static ssize_t outcome(struct connection *c, int result)
{
    int reason = SSL_get_error(c->tls, result);
    errno = reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return reason == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t put(struct connection *c, const char *data, size_t bytes)
{
    int n = SSL_write(c->tls, data, (int)bytes);
    return n > 0 ? n : outcome(c, n);
}

static ssize_t take(struct connection *c)
{
    size_t taken = 0, wanted = message_bytes - c->received;
    int n = 0;
    while (taken < wanted && (n = SSL_read(c->tls, receive_buffer + taken, RECEIVE_BYTES - (int)taken)) > 0)
        taken += n;
    return taken > 0 ? (ssize_t)taken : outcome(c, n);
}
#else
static void secure(struct connection *c)
{
    (void)c;
}

/* The socket stays blocking: connect waits. */
static ssize_t put(struct connection *c, const char *data, size_t bytes)
{
    return send(c->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t take(struct connection *c)
{
    return recv(c->fd, receive_buffer, RECEIVE_BYTES, MSG_DONTWAIT);
}
#endif

/* ---- messages ---- */

static void make_noise(void)
{
    uint64_t word = 0x9e3779b97f4a7c15ULL;
    size_t bytes = PERIOD + message_bytes;
    noise = malloc(bytes + sizeof word);
    for (size_t i = 0; i < bytes; i += sizeof word) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        memcpy(noise + i, &word, sizeof word);
    }
}

static void begin_message(struct connection *c)
{
    uint64_t number = c->id + c->message * connection_count;
    c->sent = c->received = 0;
    if (mode == HTTP) {
        message_bytes = sprintf(c->request, "GET /%0*lx HTTP/1.1\r\nHost: localhost\r\n\r\n", NUMBER_BYTES, number);
        c->expected = c->request;
    } else
        c->expected = noise + number % PERIOD;
}

/* ---- connections ---- */

static void watch(struct connection *c, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event) < 0)
        die("epoll_ctl");
}

static void choose_source(int fd)
{
    int on = 1;
    struct sockaddr_in source = {.sin_family = AF_INET};
    source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + next_id % SOURCES);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&source, sizeof source) < 0)
        die("bind");
}

static void open_connection(struct connection *c)
{
    int on = 1;
    struct timeval limit = {.tv_sec = GRACE_SECONDS};
    c->fd = socket(address.ss_family, socket_kind | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket");
    if (address.ss_family == AF_INET && socket_kind == SOCK_STREAM) {
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (mode == CHURN)
            choose_source(c->fd);
    }
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    c->started_ns = now_ns();
    if (connect(c->fd, (struct sockaddr *)&address, address_bytes) < 0)
        die("connect");
    secure(c);
    c->id = next_id++;
    c->message = 0;
    c->state = TALKING;
    c->wants_write = false;
    begin_message(c);
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
    open_count++;
}

static void end_connection(struct connection *c)
{
    close(c->fd);
    c->state = DONE;
    open_count--;
}

static void fail(struct connection *c, const char *what)
{
    if (errors++ == 0)
        fprintf(stderr, "load: connection %lu, message %lu, %zu bytes sent, %zu received: %s\n",
                c->id, c->message, c->sent, c->received, what);
    end_connection(c);
}

static void finish_request(struct connection *c)
{
    int64_t now = now_ns(), took = now - c->started_ns;
    if (!stopping) {
        requests++;
        if (latency_count < MOST_LATENCIES)
            latencies[latency_count++] = took < UINT32_MAX ? took : UINT32_MAX;
    }
    c->started_ns = now;
}

/* Sends what the socket takes of the message; the rest when the socket is writable. */
static void send_some(struct connection *c)
{
    while (c->sent < message_bytes) {
        ssize_t n = put(c, c->expected + c->sent, message_bytes - c->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            fail(c, strerror(errno));
            return;
        }
        if (n < 0)
            break;
        c->sent += n;
    }
    bool wants_write = c->sent < message_bytes;
    if (wants_write != c->wants_write) {
        c->wants_write = wants_write;
        watch(c, EPOLL_CTL_MOD, wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

static void message_echoed(struct connection *c)
{
    if (mode == CHURN) {
        shutdown(c->fd, SHUT_WR);
        c->state = ENDING;
        return;
    }
    finish_request(c);
    if (stopping) {
        end_connection(c);
        return;
    }
    c->message++;
    begin_message(c);
    send_some(c);
}

static void server_closed(struct connection *c)
{
    if (c->state != ENDING) {
        fail(c, "the server closed the connection");
        return;
    }
    finish_request(c);
    end_connection(c);
    if (!stopping) {
        open_connection(c);
        send_some(c);
    }
}

/* The received bytes are headers, an empty line, and the number; or a part of that. */
static void look_at_reply(struct connection *c, size_t n)
{
    if (c->received + n > REPLY_BYTES) {
        fail(c, "the reply is too long");
        return;
    }
    memcpy(c->reply + c->received, receive_buffer, n);
    c->received += n;
    c->reply[c->received] = '\0';
    char *end = strstr(c->reply, "\r\n\r\n");
    size_t body_bytes = end ? c->received - (end + 4 - c->reply) : 0;
    if (body_bytes < NUMBER_BYTES)
        return;
    if (body_bytes > NUMBER_BYTES || strncmp(c->reply, "HTTP/1.1 200", 12) != 0
        || memcmp(end + 4, c->request + 5, NUMBER_BYTES) != 0)
        fail(c, "a wrong reply came");
    else
        message_echoed(c);
}

static void receive_some(struct connection *c)
{
    ssize_t n = take(c);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        fail(c, strerror(errno));
    else if (n == 0)
        server_closed(c);
    else if (mode == HTTP)
        look_at_reply(c, n);
    else if (c->received + n > c->sent)
        fail(c, "more bytes came back than were sent");
    else if (memcmp(receive_buffer, c->expected + c->received, n) != 0)
        fail(c, "wrong bytes came back");
    else {
        c->received += n;
        if (c->received == message_bytes)
            message_echoed(c);
    }
}

/* ---- the run ---- */

static void run_until(int64_t deadline_ns)
{
    static struct epoll_event events[EVENTS];
    while (open_count > 0) {
        int64_t left_ns = deadline_ns - now_ns();
        if (left_ns <= 0)
            return;
        int count = epoll_wait(poller, events, EVENTS, (int)(left_ns / 1000000) + 1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                send_some(c);
            if (c->state != DONE && events[i].events & ~EPOLLOUT)
                receive_some(c);
        }
    }
}

/* How long a process has run, with all its threads, and how long its first thread has waited for a core. A long wait
 * tells that the measurement was disturbed. */
struct spent { int64_t run_ns, wait_ns; };

static struct spent spent_by(int pid)
{
    char path[64];
    clockid_t clock;
    struct spent spent = {clock_getcpuclockid(pid, &clock) == 0 ? time_ns(clock) : -1, 0};
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d %ld", &spent.wait_ns) != 1)
        spent.wait_ns = 0;
    if (file)
        fclose(file);
    return spent;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_us(double share)
{
    return latency_count == 0 ? 0 : latencies[(size_t)(share * (latency_count - 1))] / 1e3;
}

static void measure(double seconds, double warm_up_seconds, int server_pid)
{
    connections = calloc(connection_count, sizeof *connections);
    for (uint64_t i = 0; i < connection_count; i++)
        open_connection(&connections[i]);
    for (uint64_t i = 0; i < connection_count; i++)
        send_some(&connections[i]);
    run_until(now_ns() + (int64_t)(warm_up_seconds * 1e9));
    requests = latency_count = 0;

    struct spent server = spent_by(server_pid), client = spent_by(getpid());
    int64_t begin_ns = now_ns();
    run_until(begin_ns + (int64_t)(seconds * 1e9));
    double elapsed = (now_ns() - begin_ns) / 1e9;
    struct spent server_after = spent_by(server_pid), client_after = spent_by(getpid());

    stopping = true;
    run_until(now_ns() + GRACE_SECONDS * 1000000000LL);
    errors += open_count;

    qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"requests\": %lu, \"errors\": %lu, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, ",
           requests, errors, elapsed, percentile_us(0.5), percentile_us(0.99));
    printf("\"server_run_ns\": %ld, \"server_wait_ns\": %ld, \"client_run_ns\": %ld, \"client_wait_ns\": %ld}\n",
           server_after.run_ns - server.run_ns, server_after.wait_ns - server.wait_ns,
           client_after.run_ns - client.run_ns, client_after.wait_ns - client.wait_ns);
}

static void parse_address(const char *text)
{
    struct sockaddr_in *tcp = (struct sockaddr_in *)&address;
    struct sockaddr_un *local = (struct sockaddr_un *)&address;
    if (strncmp(text, "unix:", 5) == 0) {
        local->sun_family = AF_UNIX;
        strncpy(local->sun_path, text + 5, sizeof local->sun_path - 1);
        address_bytes = sizeof *local;
        return;
    }
    if (text[0] == 'u')
        socket_kind = SOCK_DGRAM;
    tcp->sin_family = AF_INET;
    tcp->sin_port = htons(atoi(text + 4));
    tcp->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_bytes = sizeof *tcp;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(stderr, "usage: load echo|churn|http ADDRESS CONNECTIONS BYTES SECONDS WARM_UP_SECONDS SERVER_PID\n");
        return 2;
    }
    mode = strcmp(argv[1], "churn") == 0 ? CHURN : strcmp(argv[1], "http") == 0 ? HTTP : ECHO;
    parse_address(argv[2]);
    connection_count = strtoull(argv[3], NULL, 10);
    message_bytes = strtoull(argv[4], NULL, 10);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    poller = epoll_create1(EPOLL_CLOEXEC);
#ifdef TLS
    signal(SIGPIPE, SIG_IGN);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
#endif
    make_noise();
    measure(atof(argv[5]), atof(argv[6]), atoi(argv[7]));
    return errors ? 1 : 0;
}
