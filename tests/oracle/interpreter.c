/* Runs scripts on libuv, and records the order of its callbacks; README.md describes the language.
 *
 * usage: interpreter < SCRIPTS > TRACES
 *
 * A script begins with a line "=== NAME" and ends where the next begins; so do the traces. Each runs in a child.
 *
 * Time is virtual, and the kernel's reports of descriptors have one order. This file has its own clock_gettime and
 * epoll_pwait, which libuv calls instead of the C library's. The clock moves when the loop sleeps, by the length of
 * that sleep, and by `busy`. Ready descriptors are reported in the order in which the script made them, the descriptor
 * of asyncs after them. Work is done before the loop polls again, unless the script holds it back.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum {
    MOST_WORDS = 8, MOST_LINES = 4000, MOST_THINGS = 400, MOST_FDS = 4096,
    LABEL = 64,
    MOST_CALLS = 100,           /* of callbacks: then the script is over */
    MOST_POLLS = 1000,
    READ_BYTES = 256 * 1024,
    WRITE_BYTES = 4 * 1024 * 1024,
    PATIENCE = 20,              /* seconds, real ones, after which a script is given up */
    LAST = 1 << 30,             /* the rank of the loop's own descriptors */
};

enum kind { TIMER, IDLE, PREPARE, CHECK, ASYNC, POLL, PIPE, TCP, SIGNAL, PROCESS, WORK, RAW };
static const char *kind_names[] = {"timer", "idle", "prepare", "check", "async", "poll", "pipe", "tcp", "signal",
                                   "process"};
static const struct { const char *name; int number; } signals[] = {
    {"usr1", SIGUSR1}, {"usr2", SIGUSR2}, {"hup", SIGHUP}, {"term", SIGTERM}, {"kill", SIGKILL},
};

struct line { int count; char *words[MOST_WORDS]; };

struct body { char label[LABEL]; int call; struct line line; };

struct thing {
    char name[LABEL], label[LABEL], closed_label[LABEL];
    enum kind kind;
    int fd;                     /* of RAW */
    bool is_done, is_cancelled; /* of WORK */
    bool is_ending;             /* of PROCESS: whether it ends by itself, soon */
    union {
        uv_handle_t handle;
        uv_timer_t timer;
        uv_idle_t idle;
        uv_prepare_t prepare;
        uv_check_t check;
        uv_async_t async;
        uv_poll_t poll;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
        uv_signal_t signal;
        uv_process_t process;
        uv_work_t work;
    };
};

struct request {
    char label[LABEL];
    union { uv_write_t write; uv_shutdown_t shutdown; uv_connect_t connect; };
};

static uv_loop_t loop;
static int64_t clock_ms = 1000000;
static struct thing *things[MOST_THINGS];
static int thing_count;
static struct body bodies[MOST_LINES];
static int body_count;
static struct { char label[LABEL]; int calls; } counters[MOST_THINGS];
static int counter_count;
static int calls, polls;
static int rank_of[MOST_FDS], ranks;
static char *bytes;
static char folder[] = "/tmp/oracle-XXXXXX";
static bool has_folder;
static char *paths[MOST_THINGS];
static int path_count;
static bool is_held;
static sem_t gate, began;
static uv_mutex_t turn;         /* who has it works: the loop's thread, or that of the pool while it is waited for */
static bool is_signalled;       /* whether something was sent since the asyncs were called */
static bool has_asyncs;         /* whether this poll brought them, and they have not been called */
static struct thing *holder;

static void act(const struct line *line);

static void finish(const char *why)
{
    if (why)
        puts(why);
    fflush(stdout);
    for (int i = 0; i < path_count; i++)
        unlink(paths[i]);
    if (has_folder)
        rmdir(folder);
    for (int i = 0; i < thing_count; i++)
        if (things[i]->kind == PROCESS && things[i]->process.pid > 1)
            kill(things[i]->process.pid, SIGKILL);
    _exit(0);
}

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "interpreter: %s %s\n", what, detail);
    printf("INVALID %s %s\n", what, detail);
    finish(NULL);
}

/* The world: time and readiness. */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = clock_ms / 1000;
    now->tv_nsec = clock_ms % 1000 * 1000000;
    return 0;
}

static void note_fd(int fd)
{
    if (fd >= 0 && fd < MOST_FDS)
        rank_of[fd] = ++ranks;
}

static int compare_events(const void *a, const void *b)
{
    const struct epoll_event *first = a, *second = b;
    int one = rank_of[first->data.fd], two = rank_of[second->data.fd];
    return (one ? one : LAST) - (two ? two : LAST);
}

static int finished_work(void)
{
    int count = 0;
    uv_mutex_lock(&loop.wq_mutex);
    for (struct uv__queue *q = loop.wq.next; q != &loop.wq; q = q->next)
        count++;
    uv_mutex_unlock(&loop.wq_mutex);
    return count;
}

/* Until all work that may be done has been done. */
static void await_work(void)
{
    int owed = 0;
    if (is_held)
        return;
    for (int i = 0; i < thing_count; i++)
        owed += things[i]->kind == WORK && !things[i]->is_done;
    uv_mutex_unlock(&turn);
    while (finished_work() < owed)
        usleep(20);
    uv_mutex_lock(&turn);
    is_signalled |= finished_work() > 0;
}

/* Until the children that end by themselves have ended. */
static void await_children(void)
{
    siginfo_t info;
    for (int i = 0; i < thing_count; i++)
        if (things[i]->kind == PROCESS && things[i]->is_ending)
            waitid(P_PID, things[i]->process.pid, &info, WEXITED | WNOWAIT);
}

static bool is_async_pending(void)
{
    for (int i = 0; i < thing_count; i++)
        if (things[i]->kind == ASYNC && things[i]->async.pending && !uv_is_closing(&things[i]->handle))
            return true;
    return loop.wq_async.pending;
}

/* An async that was sent while asyncs were being called has been called by now; libuv would only turn once more. */
static void drain(int fd)
{
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0)
        die("read", "eventfd");
}

int epoll_pwait(int epfd, struct epoll_event *events, int size, int timeout, const sigset_t *mask)
{
    (void)mask;
    await_work();
    await_children();
    if (++polls > MOST_POLLS)
        finish("limit");
    int found = syscall(SYS_epoll_pwait, epfd, events, size, 0, NULL, 8), kept = 0;
    if (found < 0)
        return found;
    for (int i = 0; i < found; i++) {
        int fd = events[i].data.fd;
        uv__io_t *watcher = (unsigned)fd < loop.nwatchers ? loop.watchers[fd] : NULL;
        /* An event without a waiting handle would only make libuv poll again. */
        if (fd == loop.async_io_watcher.fd && !is_async_pending())
            drain(fd);
        else if (!watcher)
            epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
        else if (events[i].events & (watcher->pevents | EPOLLERR | EPOLLHUP))
            events[kept++] = events[i];
    }
    has_asyncs = false;
    for (int i = 0; i < kept; i++)
        has_asyncs |= events[i].data.fd == loop.async_io_watcher.fd;
    if (has_asyncs)
        is_signalled = false;
    if (kept) {
        qsort(events, kept, sizeof *events, compare_events);
        return kept;
    }
    if (timeout < 0)
        finish("asleep for ever");
    if (timeout > 0) {
        printf("sleep %d\n", timeout);
        clock_ms += timeout;
    }
    return 0;
}

/* Names. */

static struct thing *look_for(const char *name)
{
    for (int i = thing_count - 1; i >= 0; i--)
        if (!strcmp(things[i]->name, name))
            return things[i];
    return NULL;
}

static struct thing *find(const char *name)
{
    struct thing *thing = look_for(name);
    if (!thing)
        die("no such thing:", name);
    return thing;
}

static struct thing *add(enum kind kind, const char *name)
{
    struct thing *thing = calloc(1, sizeof *thing);
    thing->kind = kind;
    thing->fd = -1;
    snprintf(thing->name, LABEL, "%s", name);
    snprintf(thing->label, LABEL, "%s", name);
    return things[thing_count++] = thing;
}

/* The label among the words from `first` on, else the name and a suffix. */
static void set_label(char *label, const struct line *line, int first, const char *name, const char *suffix)
{
    for (int i = first; i < line->count; i++)
        if (line->words[i][0] == '@') {
            snprintf(label, LABEL, "%s", line->words[i] + 1);
            return;
        }
    snprintf(label, LABEL, "%.40s%s", name, suffix);
}

static struct request *new_request(const struct line *line, const char *suffix)
{
    struct request *request = calloc(1, sizeof *request);
    set_label(request->label, line, 2, line->words[1], suffix);
    return request;
}

/* The record. */

static const char *error_name(int code)
{
    return code == UV_EOF ? "end" : uv_err_name(code);
}

static void say(const struct line *line, long long value, bool is_code)
{
    printf("  ");
    for (int i = 0; i < line->count; i++)
        printf("%s ", line->words[i]);
    if (is_code && value < 0)
        printf("= %s\n", error_name(value));
    else
        printf("= %lld\n", value);
}

/* An operation failed. */
static int check(const struct line *line, int code)
{
    if (code < 0)
        say(line, code, true);
    return code;
}

static void called(const char *label, const char *format, ...)
{
    va_list arguments;
    int i;
    char copy[LABEL];
    snprintf(copy, LABEL, "%s", label);
    if (++calls > MOST_CALLS)
        finish("limit");
    printf("%s", copy);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    for (i = 0; i < counter_count && strcmp(counters[i].label, copy); i++)
        ;
    if (i == counter_count)
        snprintf(counters[counter_count++].label, LABEL, "%s", copy);
    int call = ++counters[i].calls;
    for (i = 0; i < body_count; i++)
        if (!strcmp(bodies[i].label, copy) && (!bodies[i].call || bodies[i].call == call))
            act(&bodies[i].line);
}

static const char *outcome(int code)
{
    return code ? error_name(code) : "0";
}

/* Callbacks. */

static void on_timer(uv_timer_t *handle) { called(((struct thing *)handle->data)->label, ""); }
static void on_idle(uv_idle_t *handle) { called(((struct thing *)handle->data)->label, ""); }
static void on_prepare(uv_prepare_t *handle) { called(((struct thing *)handle->data)->label, ""); }
static void on_check(uv_check_t *handle) { called(((struct thing *)handle->data)->label, ""); }
static void on_closed(uv_handle_t *handle) { called(((struct thing *)handle->data)->closed_label, ""); }

/* The asyncs' turn has come, work's first: what was sent until now counts as sent before. */
static void begin_asyncs(void)
{
    if (has_asyncs)
        is_signalled = has_asyncs = false;
}

static void on_async(uv_async_t *handle)
{
    begin_asyncs();
    called(((struct thing *)handle->data)->label, "");
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    const char *label = ((struct thing *)handle->data)->label;
    if (status < 0)
        called(label, " %s", error_name(status));
    else
        called(label, " %s%s%s%s", events & UV_READABLE ? "r" : "", events & UV_WRITABLE ? "w" : "",
               events & UV_DISCONNECT ? "d" : "", events & UV_PRIORITIZED ? "p" : "");
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    (void)handle, (void)size;
    *buffer = uv_buf_init(bytes, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    const char *label = ((struct thing *)stream->data)->label;
    (void)buffer;
    if (count < 0)
        called(label, " %s", error_name(count));
    else if (count > 0)
        called(label, " %zd", count);
}

static void on_connection(uv_stream_t *server, int status)
{
    called(((struct thing *)server->data)->label, " %s", outcome(status));
}

static void on_written(uv_write_t *request, int status)
{
    called(((struct request *)request->data)->label, " %s", outcome(status));
}

static void on_shut(uv_shutdown_t *request, int status)
{
    called(((struct request *)request->data)->label, " %s", outcome(status));
}

static void on_connected(uv_connect_t *request, int status)
{
    struct request *ours = request->data;
    called(ours->label, " %s", outcome(status));
}

static void do_work(uv_work_t *work)
{
    if (work->data == holder) {
        sem_post(&began);
        sem_wait(&gate);
    }
    uv_mutex_lock(&turn);
    uv_mutex_unlock(&turn);
}

static void on_worked(uv_work_t *work, int status)
{
    struct thing *thing = work->data;
    begin_asyncs();
    thing->is_done = true;
    called(thing->label, " %s", outcome(status));
}

static void on_signal(uv_signal_t *handle, int number)
{
    const char *name = "?";
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i].number == number)
            name = signals[i].name;
    called(((struct thing *)handle->data)->label, " %s", name);
}

static void on_exit_of_child(uv_process_t *handle, int64_t status, int number)
{
    struct thing *thing = handle->data;
    thing->is_ending = false;
    called(thing->label, " %d %d", (int)status, number);
}

static void on_walk(uv_handle_t *handle, void *unused)
{
    (void)unused;
    printf(" %s", ((struct thing *)handle->data)->name);
}

/* Operations. */

static void socket_pair(int pair[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        die("socketpair", "");
    note_fd(pair[0]);
    note_fd(pair[1]);
}

static enum kind kind_called(const char *name)
{
    for (int kind = TIMER; kind <= PROCESS; kind++)
        if (!strcmp(name, kind_names[kind]))
            return kind;
    die("no such kind:", name);
    return RAW;
}

static struct thing *make(const struct line *line, enum kind kind, const char *name, int fd)
{
    struct thing *thing = add(kind, name);
    int code = 0;
    switch (kind) {
    case TIMER: code = uv_timer_init(&loop, &thing->timer); break;
    case IDLE: code = uv_idle_init(&loop, &thing->idle); break;
    case PREPARE: code = uv_prepare_init(&loop, &thing->prepare); break;
    case CHECK: code = uv_check_init(&loop, &thing->check); break;
    case ASYNC: code = uv_async_init(&loop, &thing->async, on_async); break;
    case POLL: code = uv_poll_init(&loop, &thing->poll, fd); break;
    case PIPE:
        code = uv_pipe_init(&loop, &thing->pipe, 0);
        if (fd >= 0)
            code = uv_pipe_open(&thing->pipe, fd);
        break;
    case TCP:
        code = uv_tcp_init(&loop, &thing->tcp);
        if (fd >= 0)
            code = uv_tcp_open(&thing->tcp, fd);
        break;
    case SIGNAL: code = uv_signal_init(&loop, &thing->signal); break;
    case PROCESS: break;        /* by `spawn` */
    default: die("cannot make", name);
    }
    thing->handle.data = thing;
    check(line, code);
    return thing;
}

static int signal_called(const char *name)
{
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!strcmp(signals[i].name, name))
            return signals[i].number;
    die("no such signal:", name);
    return 0;
}

/* Nobody raises a signal for which nobody waits: it would be the end. */
static void raise_signal(int number)
{
    for (int i = 0; i < thing_count; i++)
        if (things[i]->kind == SIGNAL && things[i]->signal.signum == number) {
            raise(number);
            return;
        }
}

static void spawn(const struct line *line, struct thing *thing)
{
    char command[LABEL];
    char *sleeper[] = {"sleep", "1000", NULL}, *shell[] = {"sh", "-c", command, NULL};
    bool sleeps = !strcmp(line->words[2], "-");
    uv_process_options_t options = {.exit_cb = on_exit_of_child, .args = sleeps ? sleeper : shell};
    options.file = options.args[0];
    snprintf(command, LABEL, "exit %.10s", line->words[2]);
    check(line, uv_spawn(&loop, &thing->process, &options));
    thing->handle.data = thing;
    thing->is_ending = !sleeps;
    set_label(thing->label, line, 3, thing->name, "");
}

static void start(const struct line *line, struct thing *thing)
{
    char label[LABEL];
    bool was_active = uv_is_active(&thing->handle);
    set_label(label, line, 2, thing->name, "");
    int code = 0, events = 0;
    switch (thing->kind) {
    case TIMER:
        code = uv_timer_start(&thing->timer, on_timer, atoi(line->words[2]), atoi(line->words[3]));
        was_active = false;
        break;
    case IDLE: code = uv_idle_start(&thing->idle, on_idle); break;
    case PREPARE: code = uv_prepare_start(&thing->prepare, on_prepare); break;
    case CHECK: code = uv_check_start(&thing->check, on_check); break;
    case POLL:
        for (const char *letter = line->words[2]; *letter; letter++)
            events |= *letter == 'r' ? UV_READABLE : *letter == 'w' ? UV_WRITABLE : *letter == 'd' ? UV_DISCONNECT
                      : *letter == 'p' ? UV_PRIORITIZED : 0;
        code = uv_poll_start(&thing->poll, events, on_poll);
        was_active = false;
        break;
    case SIGNAL:
        code = (line->count > 3 && !strcmp(line->words[3], "once") ? uv_signal_start_oneshot : uv_signal_start)(
            &thing->signal, on_signal, signal_called(line->words[2]));
        was_active = false;
        break;
    default: die("cannot start", thing->name);
    }
    /* A label stands for a function: that of a start which libuv ignores is ignored, too. */
    if (check(line, code) == 0 && !was_active)
        snprintf(thing->label, LABEL, "%s", label);
}

static void stop(struct thing *thing)
{
    switch (thing->kind) {
    case TIMER: uv_timer_stop(&thing->timer); break;
    case IDLE: uv_idle_stop(&thing->idle); break;
    case PREPARE: uv_prepare_stop(&thing->prepare); break;
    case CHECK: uv_check_stop(&thing->check); break;
    case POLL: uv_poll_stop(&thing->poll); break;
    case SIGNAL: uv_signal_stop(&thing->signal); break;
    default: die("cannot stop", thing->name);
    }
}

/* The answer of `uv_backend_timeout` after the changes of watched descriptors have reached the kernel. */
static int backend_timeout(void)
{
    if (is_signalled && is_async_pending())
        return 0;               /* the backend's descriptor is readable */
    struct uv__queue *first = loop.watcher_queue.next, *last = loop.watcher_queue.prev;
    loop.watcher_queue.next = loop.watcher_queue.prev = &loop.watcher_queue;
    int timeout = uv_backend_timeout(&loop);
    loop.watcher_queue.next = first;
    loop.watcher_queue.prev = last;
    return timeout;
}

static const char *socket_name(const char *name)
{
    char *path = malloc(LABEL * 2);
    if (!has_folder && !mkdtemp(folder))
        die("mkdtemp", folder);
    has_folder = true;
    snprintf(path, LABEL * 2, "%s/%s", folder, name);
    return paths[path_count++] = path;
}

static void note_stream(struct thing *thing)
{
    uv_os_fd_t fd;
    if (uv_fileno(&thing->handle, &fd) == 0)
        note_fd(fd);
}

static void connect_to(const struct line *line, struct thing *thing)
{
    struct request *request = new_request(line, ".connected");
    request->connect.data = request;
    uv_pipe_connect(&request->connect, &thing->pipe, socket_name(line->words[2]), on_connected);
    note_stream(thing);
}

static void queue_work(const char *name)
{
    struct thing *work = add(WORK, name);
    work->work.data = work;
    if (is_held && !holder)
        holder = work;
    uv_queue_work(&loop, &work->work, do_work, on_worked);
}

static void hold(void)
{
    if (is_held)
        return;
    await_work();
    is_held = true;
    holder = NULL;
    queue_work("holder");
    while (sem_wait(&began))
        ;
}

static void release(void)
{
    if (!is_held)
        return;
    is_held = false;
    sem_post(&gate);
}

static bool is_handle(const struct thing *thing)
{
    return thing->kind < WORK;
}

static bool is_stream(const struct thing *thing)
{
    return thing->kind == PIPE || thing->kind == TCP;
}

static bool on_loop(const struct line *line)
{
    const char *op = line->words[0];
    if (!strcmp(op, "stoploop"))
        uv_stop(&loop);
    else if (!strcmp(op, "update"))
        uv_update_time(&loop);
    else if (!strcmp(op, "busy"))
        clock_ms += atoi(line->words[1]);
    else if (!strcmp(op, "alive"))
        say(line, uv_loop_alive(&loop), false);
    else if (!strcmp(op, "timeout"))
        say(line, backend_timeout(), false);
    else if (!strcmp(op, "now"))
        say(line, (long long)uv_now(&loop) - 1000000, false);
    else if (!strcmp(op, "walk")) {
        printf("  walk =");
        uv_walk(&loop, on_walk, NULL);
        printf("\n");
    } else if (!strcmp(op, "hold"))
        hold();
    else if (!strcmp(op, "release"))
        release();
    else if (!strcmp(op, "raise"))
        raise_signal(signal_called(line->words[1]));
    else
        return false;
    return true;
}

static bool on_making(const struct line *line)
{
    const char *op = line->words[0];
    int pair[2];
    if (!strcmp(op, "new"))
        make(line, kind_called(line->words[1]), line->words[2], line->count > 3 ? find(line->words[3])->fd : -1);
    else if (!strcmp(op, "fds") || !strcmp(op, "half") || !strcmp(op, "pair")) {
        socket_pair(pair);
        if (!strcmp(op, "fds")) {
            add(RAW, line->words[1])->fd = pair[0];
            add(RAW, line->words[2])->fd = pair[1];
        } else {
            make(line, kind_called(line->words[1]), line->words[2], pair[0]);
            if (!strcmp(op, "half"))
                add(RAW, line->words[3])->fd = pair[1];
            else
                make(line, kind_called(line->words[1]), line->words[3], pair[1]);
        }
    } else if (!strcmp(op, "work"))
        queue_work(line->words[1]);
    else
        return false;
    return true;
}

static void on_raw(const struct line *line, struct thing *thing)
{
    const char *op = line->words[0];
    if (thing->fd < 0)
        return;
    if (!strcmp(op, "put"))
        say(line, send(thing->fd, bytes, atoi(line->words[2]), MSG_NOSIGNAL), false);
    else if (!strcmp(op, "take"))
        say(line, recv(thing->fd, bytes, atoi(line->words[2]), 0), false);
    else if (!strcmp(op, "end"))
        shutdown(thing->fd, SHUT_WR);
    else if (!strcmp(op, "cut")) {
        close(thing->fd);
        thing->fd = -1;
    } else
        die("no such operation:", op);
}

static void on_work(const struct line *line, struct thing *thing)
{
    if (thing->is_done || thing->is_cancelled)
        return;                 /* libuv does not expect to be asked again */
    await_work();
    thing->is_cancelled = check(line, uv_cancel((uv_req_t *)&thing->work)) == 0;
    is_signalled |= thing->is_cancelled;
}

static bool on_any_handle(const struct line *line, struct thing *thing)
{
    const char *op = line->words[0];
    if (!strcmp(op, "active"))
        say(line, uv_is_active(&thing->handle), false);
    else if (!strcmp(op, "closing"))
        say(line, uv_is_closing(&thing->handle) != 0, false);
    else if (uv_is_closing(&thing->handle))
        return true;            /* libuv aborts, or does what is undefined */
    else if (!strcmp(op, "hasref"))
        say(line, uv_has_ref(&thing->handle), false);
    else if (!strcmp(op, "ref"))
        uv_ref(&thing->handle);
    else if (!strcmp(op, "unref"))
        uv_unref(&thing->handle);
    else if (!strcmp(op, "start"))
        start(line, thing);
    else if (!strcmp(op, "stop"))
        stop(thing);
    else if (!strcmp(op, "close")) {
        bool is_silent = line->count > 2 && !strcmp(line->words[2], "-");
        set_label(thing->closed_label, line, 2, thing->name, ".closed");
        uv_close(&thing->handle, is_silent ? NULL : on_closed);
    } else if (!strcmp(op, "send"))
        is_signalled |= !thing->async.pending, uv_async_send(&thing->async);
    else if (!strcmp(op, "again"))
        check(line, uv_timer_again(&thing->timer));
    else if (!strcmp(op, "repeat"))
        uv_timer_set_repeat(&thing->timer, atoi(line->words[2]));
    else if (!strcmp(op, "spawn"))
        spawn(line, thing);
    else if (!strcmp(op, "kill")) {
        check(line, uv_process_kill(&thing->process, signal_called(line->words[2])));
        thing->is_ending = true;
    } else if (!strcmp(op, "getrepeat"))
        say(line, uv_timer_get_repeat(&thing->timer), false);
    else if (!strcmp(op, "due"))
        say(line, uv_is_active(&thing->handle) ? uv_timer_get_due_in(&thing->timer) : 0, false);
    else
        return false;
    return true;
}

static void on_stream(const struct line *line, struct thing *thing)
{
    const char *op = line->words[0];
    struct request *request;
    uv_buf_t buffer = uv_buf_init(bytes, line->count > 2 ? atoi(line->words[2]) : 0);
    char label[LABEL];
    if (!strcmp(op, "read")) {
        set_label(label, line, 2, thing->name, "");
        if (check(line, uv_read_start(&thing->stream, on_alloc, on_read)) == 0)
            snprintf(thing->label, LABEL, "%s", label);
    } else if (!strcmp(op, "noread"))
        uv_read_stop(&thing->stream);
    else if (!strcmp(op, "write")) {
        request = new_request(line, ".written");
        request->write.data = request;
        check(line, uv_write(&request->write, &thing->stream, &buffer, 1, on_written));
    } else if (!strcmp(op, "try"))
        say(line, uv_try_write(&thing->stream, &buffer, 1), true);
    else if (!strcmp(op, "shutdown")) {
        request = new_request(line, ".shut");
        request->shutdown.data = request;
        check(line, uv_shutdown(&request->shutdown, &thing->stream, on_shut));
    } else if (!strcmp(op, "queued"))
        say(line, uv_stream_get_write_queue_size(&thing->stream), false);
    else if (!strcmp(op, "readable"))
        say(line, uv_is_readable(&thing->stream), false);
    else if (!strcmp(op, "writable"))
        say(line, uv_is_writable(&thing->stream), false);
    else if (!strcmp(op, "bind")) {
        check(line, uv_pipe_bind(&thing->pipe, socket_name(line->words[2])));
        note_stream(thing);
    } else if (!strcmp(op, "listen")) {
        set_label(thing->label, line, 2, thing->name, "");
        check(line, uv_listen(&thing->stream, 128, on_connection));
    } else if (!strcmp(op, "connect"))
        connect_to(line, thing);
    else if (!strcmp(op, "accept")) {
        struct thing *client = find(line->words[2]);
        if (check(line, uv_accept(&thing->stream, &client->stream)) == 0)
            note_stream(client);
    } else
        die("no such operation:", op);
}

static void act(const struct line *line)
{
    if (on_loop(line) || on_making(line))
        return;
    if (!strcmp(line->words[0], "cancel") && !look_for(line->words[1]))
        return;
    struct thing *thing = find(line->words[1]);
    if (thing->kind == RAW)
        on_raw(line, thing);
    else if (thing->kind == WORK)
        on_work(line, thing);
    else if (is_handle(thing) && on_any_handle(line, thing))
        return;
    else if (is_stream(thing))
        on_stream(line, thing);
    else
        die("cannot", line->words[0]);
}

static void run(const struct line *line)
{
    const char *mode = line->words[1];
    printf("run %s\n", mode);
    int alive = uv_run(&loop, !strcmp(mode, "default") ? UV_RUN_DEFAULT : !strcmp(mode, "once") ? UV_RUN_ONCE
                                                                                                  : UV_RUN_NOWAIT);
    printf("  run = %d\n", alive != 0);
}

/* Scripts. */

static void split(char *text, struct line *line)
{
    line->count = 0;
    for (char *word = strtok(text, " \n"); word && line->count < MOST_WORDS; word = strtok(NULL, " \n"))
        line->words[line->count++] = word;
}

/* Note a line "on LABEL [CALL] OPERATION ...". */
static void note_body(const struct line *line)
{
    struct body *body = &bodies[body_count++];
    int first = 2;
    snprintf(body->label, LABEL, "%s", line->words[1]);
    if (line->count > 2 && strspn(line->words[2], "0123456789") == strlen(line->words[2]))
        body->call = atoi(line->words[first++]);
    body->line.count = line->count - first;
    memcpy(body->line.words, line->words + first, body->line.count * sizeof *line->words);
}

static void perform(char **texts, int count)
{
    struct line *lines = calloc(count + 1, sizeof *lines);
    bytes = calloc(1, WRITE_BYTES);
    uv_mutex_init(&turn);
    uv_mutex_lock(&turn);
    sem_init(&gate, 0, 0);
    sem_init(&began, 0, 0);
    uv_loop_init(&loop);
    for (int i = 0; i < count; i++) {
        split(texts[i], &lines[i]);
        if (lines[i].count && !strcmp(lines[i].words[0], "on"))
            note_body(&lines[i]);
    }
    for (int i = 0; i < count; i++) {
        if (!lines[i].count || lines[i].words[0][0] == '#' || !strcmp(lines[i].words[0], "on"))
            continue;
        if (!strcmp(lines[i].words[0], "run"))
            run(&lines[i]);
        else
            act(&lines[i]);
    }
    finish(NULL);
}

static void perform_in_child(const char *title, char **texts, int count)
{
    int status;
    if (!title)
        return;
    printf("%s", title);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        perform(texts, count);
    }
    waitpid(child, &status, 0);
    if (status) {
        fprintf(stderr, "interpreter: the script %s ended badly (%d)\n", title, status);
        printf("INVALID status %d\n", status);
    }
}

int main(void)
{
    static char *texts[MOST_LINES];
    char *text = NULL, *title = NULL;
    size_t room = 0;
    int count = 0;
    signal(SIGPIPE, SIG_IGN);
    setenv("UV_THREADPOOL_SIZE", "1", 1);
    setenv("UV_USE_IO_URING", "0", 1);
    while (getline(&text, &room, stdin) > 0) {
        if (strncmp(text, "===", 3) == 0) {
            perform_in_child(title, texts, count);
            title = strdup(text);
            count = 0;
        } else if (count < MOST_LINES) {
            texts[count++] = strdup(text);
        }
    }
    perform_in_child(title, texts, count);
    return 0;
}
