/* The machine's cases on libuv, from C, to compare Whorl's handles with.
 *
 * usage: uv_bench echo tcp | uv_bench echo unix:PATH
 *        uv_bench timers | asyncs | threads  SECONDS
 *
 * The first prints "READY ADDRESS" and serves until it is killed. The others print one line of JSON, as micro.py does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <uv.h>

enum { BACKLOG = 2048, TIMERS = 1000, CHECK_EVERY = 1000 };

struct echo { uv_write_t request; uv_buf_t buffer; };

static uv_loop_t *loop;
static int is_tcp;
static double deadline, began;
static long long operations;

static void die(const char *what)
{
    fprintf(stderr, "uv_bench: %s\n", what);
    exit(2);
}

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Echo. */

static void on_closed(uv_handle_t *handle) { free(handle); }

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    (void)handle;
    *buffer = uv_buf_init(malloc(size), size);
}

static void on_written(uv_write_t *request, int status)
{
    struct echo *echo = (struct echo *)request;
    (void)status;
    free(echo->buffer.base);
    free(echo);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    if (count > 0) {
        struct echo *echo = malloc(sizeof *echo);
        echo->buffer = uv_buf_init(buffer->base, count);
        uv_write(&echo->request, stream, &echo->buffer, 1, on_written);
        return;
    }
    free(buffer->base);
    if (count < 0)
        uv_close((uv_handle_t *)stream, on_closed);
}

static void on_connection(uv_stream_t *server, int status)
{
    uv_stream_t *client = malloc(is_tcp ? sizeof(uv_tcp_t) : sizeof(uv_pipe_t));
    if (status < 0)
        die(uv_strerror(status));
    if (is_tcp) {
        uv_tcp_init(loop, (uv_tcp_t *)client);
        uv_tcp_nodelay((uv_tcp_t *)client, 1);
    } else {
        uv_pipe_init(loop, (uv_pipe_t *)client, 0);
    }
    if (uv_accept(server, client) == 0)
        uv_read_start(client, on_alloc, on_read);
}

static void serve(const char *address)
{
    static uv_tcp_t tcp;
    static uv_pipe_t pipe;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int length = sizeof name;
    is_tcp = !strcmp(address, "tcp");
    uv_stream_t *server = is_tcp ? (uv_stream_t *)&tcp : (uv_stream_t *)&pipe;
    if (is_tcp) {
        uv_tcp_init(loop, &tcp);
        if (uv_tcp_bind(&tcp, (struct sockaddr *)&name, 0) || uv_tcp_getsockname(&tcp, (struct sockaddr *)&name, &length))
            die("bind");
    } else {
        uv_pipe_init(loop, &pipe, 0);
        if (uv_pipe_bind(&pipe, address + strlen("unix:")))
            die("bind");
    }
    if (uv_listen(server, BACKLOG, on_connection))
        die("listen");
    if (is_tcp)
        printf("READY tcp:%d\n", ntohs(name.sin_port));
    else
        printf("READY %s\n", address);
    fflush(stdout);
    uv_run(loop, UV_RUN_DEFAULT);
}

/* Timers and asyncs. */

static int is_over(void)
{
    return ++operations % CHECK_EVERY == 0 && seconds_of(CLOCK_MONOTONIC) >= deadline;
}

static void on_timer(uv_timer_t *timer)
{
    uv_timer_start(timer, on_timer, 0, 0);
}

static void on_turn(uv_check_t *check)
{
    (void)check;
    operations += TIMERS;
    if (seconds_of(CLOCK_MONOTONIC) >= deadline)
        uv_stop(loop);
}

static void run_timers(void)
{
    static uv_timer_t timers[TIMERS];
    static uv_check_t check;
    uv_check_init(loop, &check);
    uv_check_start(&check, on_turn);
    for (int i = 0; i < TIMERS; i++) {
        uv_timer_init(loop, &timers[i]);
        uv_timer_start(&timers[i], on_timer, 0, 0);
    }
    uv_run(loop, UV_RUN_DEFAULT);
}

static void on_async(uv_async_t *async)
{
    if (is_over())
        uv_stop(loop);
    uv_async_send(async);
}

static void run_asyncs(void)
{
    static uv_async_t async;
    uv_async_init(loop, &async, on_async);
    uv_async_send(&async);
    uv_run(loop, UV_RUN_DEFAULT);
}

static uv_async_t ping, pong;

static void on_ping(uv_async_t *async)
{
    (void)async;
    if (is_over())
        uv_stop(loop);
    uv_async_send(&pong);
}

static void on_pong(uv_async_t *async)
{
    (void)async;
    operations++;
    uv_async_send(&ping);
}

static void run_other(void *other)
{
    uv_run(other, UV_RUN_DEFAULT);
}

static void run_threads(void)
{
    static uv_loop_t other;
    uv_thread_t thread;
    uv_loop_init(&other);
    uv_async_init(loop, &ping, on_ping);
    uv_async_init(&other, &pong, on_pong);
    uv_thread_create(&thread, run_other, &other);
    uv_async_send(&pong);
    uv_run(loop, UV_RUN_DEFAULT);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: uv_bench echo tcp|unix:PATH, or uv_bench timers|asyncs|threads SECONDS\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    loop = uv_default_loop();
    if (!strcmp(argv[1], "echo")) {
        serve(argv[2]);
        return 0;
    }
    double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    began = seconds_of(CLOCK_MONOTONIC);
    deadline = began + atof(argv[2]);
    if (!strcmp(argv[1], "timers"))
        run_timers();
    else if (!strcmp(argv[1], "asyncs"))
        run_asyncs();
    else
        run_threads();
    printf("{\"operations\": %lld, \"seconds\": %.9f, \"busy_seconds\": %.9f, \"waited_seconds\": null}\n", operations,
           seconds_of(CLOCK_MONOTONIC) - began, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    return 0;
}
