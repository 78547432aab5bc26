/* Threads that look names up: one crew for all loops of the process. They are no threads of Python's and
   never wait for the GIL, so all of this is C. A lock guards everything here; no thread keeps it while it
   looks a name up. */
#pragma once
#include <Python.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The look-ups of one loop. */
typedef struct whorl_name_channel {
    struct whorl_name_lookup *answered; /* those that the loop has not taken yet, the newest first */
    Py_ssize_t users;                   /* the loop, and the look-ups that are queued or under way */
    int fd;                             /* the counter that wakes the loop; the last user closes it */
    int is_closed;
    unsigned int forks;                 /* the value of `whorl_name_forks` when it was made */
} whorl_name_channel;

typedef struct whorl_name_lookup {
    struct whorl_name_lookup *next;
    whorl_name_channel *channel;
    uint64_t number;
    struct addrinfo hints;
    struct addrinfo *answer;
    int code;  /* of getaddrinfo */
    int error; /* the error number, if the code asks for it */
    const char *host;
    const char *service;
    char names[]; /* the memory behind these two */
} whorl_name_lookup;

typedef struct whorl_name_thread {
    struct whorl_name_thread *next;
    pthread_t id;
    int is_asking;  /* whether it is in the C library, for any time */
    int is_waiting; /* whether it is one of those that wait for a look-up */
    int must_leave; /* whether another thread waits for its end, and frees this */
} whorl_name_thread;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    whorl_name_lookup *first, **last;
    whorl_name_thread *threads;
    Py_ssize_t queued, waiting, running, channels;
} whorl_names = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The number of forks that lie between this process and the one that first started a thread. */
static unsigned int whorl_name_forks;

/* Forget the threads and all look-ups: a forked child has no such threads. Python's functions for this are
   not called when other code forks. */
static void whorl_names_forked(void) {
    whorl_name_forks++;
    memset(&whorl_names, 0, sizeof(whorl_names));
    pthread_mutex_init(&whorl_names.lock, NULL);
    pthread_cond_init(&whorl_names.changed, NULL);
}

/* Free a look-up with its answer. C memory has no owner in Python. */
static void whorl_name_free(whorl_name_lookup *lookup) {
    if (lookup->answer != NULL)
        freeaddrinfo(lookup->answer);
    free(lookup);
}

/* Note that a channel has a user less, and free it after the last one, which may be a thread. The caller has
   the lock. */
static void whorl_name_leave_channel(whorl_name_channel *channel) {
    whorl_name_lookup *lookup;
    if (--channel->users > 0)
        return;
    while ((lookup = channel->answered) != NULL) {
        channel->answered = lookup->next;
        whorl_name_free(lookup);
    }
    close(channel->fd);
    free(channel);
}

/* Hand an answer to the loop, and wake it if it has no other one. The caller has the lock, and gets it back:
   a loop that is woken while a thread has it would sleep again. It runs without the GIL. */
static void whorl_name_answered(whorl_name_lookup *lookup) {
    whorl_name_channel *channel = lookup->channel;
    uint64_t one = 1;
    int must_wake = channel->answered == NULL && !channel->is_closed;
    lookup->next = channel->answered;
    channel->answered = lookup;
    if (must_wake) {
        pthread_mutex_unlock(&whorl_names.lock);
        while (write(channel->fd, &one, sizeof one) < 0 && errno == EINTR)
            ;
        pthread_mutex_lock(&whorl_names.lock);
    }
    whorl_name_leave_channel(channel);
}

/* Count whether a thread waits. The caller has the lock. Python does not know such threads. */
static void whorl_name_count_waiting(whorl_name_thread *thread, int is_waiting) {
    whorl_names.waiting += is_waiting - thread->is_waiting;
    thread->is_waiting = is_waiting;
}

/* Take a thread out of the crew at a place in the list. The caller has the lock. C memory has no owner in
   Python. */
static void whorl_name_take_out(whorl_name_thread **place) {
    whorl_name_thread *thread = *place;
    *place = thread->next;
    whorl_names.running--;
    whorl_name_count_waiting(thread, 0);
}

/* Let a thread leave the crew and end. The caller has the lock, which is given back. It runs without the
   GIL. */
static void whorl_name_leave_crew(whorl_name_thread *self) {
    whorl_name_thread **place = &whorl_names.threads;
    int is_joined = self->must_leave;
    if (!is_joined) {
        while (*place != self)
            place = &(*place)->next;
        whorl_name_take_out(place);
    }
    pthread_mutex_unlock(&whorl_names.lock);
    if (!is_joined) {
        pthread_detach(pthread_self());
        free(self);
    }
}

/* Look names up, for the life of a thread. It runs without the GIL. */
static void *whorl_name_work(void *argument) {
    whorl_name_thread *self = argument;
    whorl_name_lookup *lookup;
    pthread_mutex_lock(&whorl_names.lock);
    for (;;) {
        while (whorl_names.first == NULL && whorl_names.channels > 0 && !self->must_leave) {
            whorl_name_count_waiting(self, 1);
            pthread_cond_wait(&whorl_names.changed, &whorl_names.lock);
            whorl_name_count_waiting(self, 0);
        }
        if (whorl_names.channels == 0 || self->must_leave)
            break;
        lookup = whorl_names.first;
        whorl_names.first = lookup->next;
        whorl_names.queued--;
        self->is_asking = 1;
        pthread_mutex_unlock(&whorl_names.lock);
        lookup->code = getaddrinfo(lookup->host, lookup->service, &lookup->hints, &lookup->answer);
        lookup->error = errno;
        if (lookup->code != 0)
            lookup->answer = NULL;
        pthread_mutex_lock(&whorl_names.lock);
        self->is_asking = 0;
        whorl_name_answered(lookup);
    }
    whorl_name_leave_crew(self);
    return NULL;
}

/* Start one more thread, which gets no signals: Python's handlers expect to interrupt one of Python's
   threads. The caller has the lock. Python's threads would wait for the GIL. */
static int whorl_name_start_thread(void) {
    static int knows_forks;
    whorl_name_thread *thread;
    sigset_t all, former;
    int code;
    if (!knows_forks && pthread_atfork(NULL, NULL, whorl_names_forked) != 0)
        return -1;
    knows_forks = 1;
    thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    code = pthread_create(&thread->id, NULL, whorl_name_work, thread);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    if (code != 0) {
        free(thread);
        return -1;
    }
    thread->next = whorl_names.threads;
    whorl_names.threads = thread;
    whorl_names.running++;
    return 0;
}

/* Return the look-ups of a loop, which is woken by a counter that belongs to them from now on; NULL if there
   is no memory. Threads use it without the GIL. */
static whorl_name_channel *whorl_name_open(int fd) {
    whorl_name_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return NULL;
    channel->fd = fd;
    channel->users = 1;
    channel->forks = whorl_name_forks;
    pthread_mutex_lock(&whorl_names.lock);
    whorl_names.channels++;
    pthread_mutex_unlock(&whorl_names.lock);
    return channel;
}

/* Take a look-up out of the queue; a number of 0 means all of the loop. What a thread is at goes on. The
   caller has the lock; C memory has no owner in Python. */
static void whorl_name_withdraw_queued(whorl_name_channel *channel, uint64_t number) {
    whorl_name_lookup **place = &whorl_names.first, *lookup;
    while ((lookup = *place) != NULL) {
        if (lookup->channel != channel || (number != 0 && lookup->number != number)) {
            place = &lookup->next;
            continue;
        }
        *place = lookup->next;
        whorl_names.queued--;
        channel->users--; /* The loop is still one of them. */
        whorl_name_free(lookup);
    }
    whorl_names.last = place;
}

/* Keep a look-up from being done, if no thread has begun it. Threads use the queue without the GIL. */
static void whorl_name_withdraw(whorl_name_channel *channel, uint64_t number) {
    pthread_mutex_lock(&whorl_names.lock);
    whorl_name_withdraw_queued(channel, number);
    pthread_mutex_unlock(&whorl_names.lock);
}

/* Let the threads end, as no loop needs them, and wait for that: a fork by Python warns of threads. A thread
   that is in the C library stays in the crew, so that there are never more. When it has its answer it goes
   on if a loop needs it by then, and ends if not. The caller has the lock, and gets it back. Python does not
   know these threads. */
static void whorl_name_end_threads(void) {
    whorl_name_thread **place = &whorl_names.threads, *thread, *next, *ending = NULL;
    while ((thread = *place) != NULL) {
        if (thread->is_asking) {
            place = &thread->next;
            continue;
        }
        whorl_name_take_out(place);
        thread->must_leave = 1;
        thread->next = ending;
        ending = thread;
    }
    pthread_cond_broadcast(&whorl_names.changed);
    pthread_mutex_unlock(&whorl_names.lock);
    for (thread = ending; thread != NULL; thread = next) {
        next = thread->next;
        pthread_join(thread->id, NULL);
        free(thread);
    }
    pthread_mutex_lock(&whorl_names.lock);
}

/* Forget the look-ups of a loop. Those of a parent process stay in memory, as a thread may have been at them.
   Threads use the channel without the GIL. */
static void whorl_name_close(whorl_name_channel *channel) {
    if (channel->forks != whorl_name_forks) {
        close(channel->fd);
        return;
    }
    pthread_mutex_lock(&whorl_names.lock);
    whorl_name_withdraw_queued(channel, 0);
    channel->is_closed = 1;
    whorl_name_leave_channel(channel);
    if (--whorl_names.channels == 0)
        whorl_name_end_threads();
    pthread_mutex_unlock(&whorl_names.lock);
}

/* Look a host and a service up in a thread, of at most so many; a length of -1 means NULL. Return 0, or -1
   if there is no memory or no thread. Threads use the queue without the GIL. */
static int whorl_name_ask(whorl_name_channel *channel, uint64_t number, const char *host,
                          Py_ssize_t host_size, const char *service, Py_ssize_t service_size, int family,
                          int kind, int protocol, int flags, Py_ssize_t most_threads) {
    whorl_name_lookup *lookup = calloc(1, sizeof *lookup + host_size + service_size + 2);
    int must_wake;
    if (lookup == NULL)
        return -1;
    lookup->channel = channel;
    lookup->number = number;
    lookup->hints.ai_family = family;
    lookup->hints.ai_socktype = kind;
    lookup->hints.ai_protocol = protocol;
    lookup->hints.ai_flags = flags;
    if (host_size >= 0)
        lookup->host = memcpy(lookup->names, host, host_size);
    if (service_size >= 0)
        lookup->service = memcpy(lookup->names + host_size + 1, service, service_size);
    pthread_mutex_lock(&whorl_names.lock);
    if (whorl_names.queued >= whorl_names.waiting && whorl_names.running < most_threads
        && whorl_name_start_thread() < 0 && whorl_names.running == 0) {
        pthread_mutex_unlock(&whorl_names.lock);
        free(lookup);
        return -1;
    }
    if (whorl_names.first == NULL)
        whorl_names.last = &whorl_names.first;
    *whorl_names.last = lookup;
    whorl_names.last = &lookup->next;
    whorl_names.queued++;
    channel->users++;
    must_wake = whorl_names.waiting > 0;
    pthread_mutex_unlock(&whorl_names.lock);
    if (must_wake) /* A thread that wakes before the lock is free sleeps again. */
        pthread_cond_signal(&whorl_names.changed);
    return 0;
}

/* Return the answered look-ups of a loop, the oldest first, for the loop to free. Threads use the list
   without the GIL. */
static whorl_name_lookup *whorl_name_take(whorl_name_channel *channel) {
    whorl_name_lookup *lookup, *next, *taken = NULL;
    pthread_mutex_lock(&whorl_names.lock);
    lookup = channel->answered;
    channel->answered = NULL;
    pthread_mutex_unlock(&whorl_names.lock);
    for (; lookup != NULL; lookup = next) {
        next = lookup->next;
        lookup->next = taken;
        taken = lookup;
    }
    return taken;
}
