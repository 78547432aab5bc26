/* A thread that looks at loops without the interpreter's lock: no thread of Python's can.

   It reads numbers of each loop. While they stay the same and the loop is awake, the loop may stall. Then it
   wakes the watchdog's Python thread, and hands over its last look before that. The Python thread sleeps
   else: each of its looks costs a busy loop the lock, and three switches of threads.

   If the Python thread does not get the interpreter's lock for a while, other code holds it, or the machine
   is busy. Then this thread notes the system call of the loop's thread, and reads its stack (`frames.h`). The
   loop's thread notices nothing of that.

   The mutex is held while a loop's memory is read, and whoever frees that memory takes the loop out before,
   under the same mutex. This thread never waits for the interpreter's lock, so nobody who holds that lock
   waits here for long.

   What it finds while the lock is held also goes into the recording, for other processes to read. */
#pragma once
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "whorl/core/threads.h"
#include "whorl/inspector/watching/frames.h"

#define WHORL_PLACES 64
#define WHORL_NOTES 16
#define WHORL_ENDING 2 /* the thread ends: none can be started */
#define WHORL_LOCK_WAIT_NS 20000000 /* A longer wait for the interpreter's lock means that C code has it. */

typedef struct {
    int64_t when;                     /* 0: there was no look */
    int64_t turns, callbacks, idle;   /* `looks.progress_of` says what they are */
    int64_t sleep_began, poll_ended;
    int64_t active;                   /* how long the loop had run and been awake */
    int64_t ran, starved;             /* the times of its thread; -1: the system does not tell */
    int is_turning;
} whorl_look;

typedef struct {
    const whorl_seen_number *turns, *callbacks, *idle; /* of the loop; NULL: a free place */
    const whorl_seen_number *sleep_began, *poll_ended, *ran, *run_began;
    const whorl_seen_int *is_turning;
    int thread, times;         /* the thread, and the descriptor of its schedstat or -1 */
    int64_t since;             /* when it was first seen doing what it does; 0: it sleeps or is in no turn */
    int64_t earliest;          /* when it can have begun that */
    int64_t next;              /* how long after that the next note is made */
    int64_t told;              /* when the Python thread was woken for it; 0: not yet */
    whorl_look latest, before; /* the last look, and the last one before `since` */
    whorl_look handed;         /* that one of the first activity for which the Python thread was woken */
    int is_handed;             /* whether it has not taken that yet */
    whorl_look asked;          /* when the sleeping Python thread was woken for it; `when` is 0: it was not */
} whorl_place;

typedef struct {
    int place;
    int64_t when;
    char syscall[120];
    char stack[WHORL_STACK_SIZE]; /* empty: it could not be taken */
} whorl_note;

/* Where a recording has the sign of life, and what is seen without the lock (core/recording/layout). */
#define WHORL_ALIVE_AT 96
#define WHORL_BLIND_AT 1536
#define WHORL_BLIND_STACK 2408
typedef struct {
    int64_t since, seen, thread, length;
    char syscall[120], stack[WHORL_BLIND_STACK];
} whorl_blind;
_Static_assert(WHORL_BLIND_AT + sizeof(whorl_blind) == 4096, "the header of a recording");

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake, told;
    pthread_t thread;
    int runs, ends, reads_stacks, note_count;
    int is_told_made, rests; /* whether the Python thread waits for `told` */
    int64_t threshold, interval, beat;
    int64_t woken;           /* when there was something to tell it; 0: there is nothing */
    Py_buffer recording; /* its memory is `buf`, NULL if there is none */
    whorl_place places[WHORL_PLACES];
} whorl_native = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static whorl_note whorl_native_notes[WHORL_NOTES]; /* what the mutex guards, too */
static Py_buffer whorl_native_inherited; /* the parent's recording, in a forked child; `obj` is NULL: none */

/* Read the monotonic clock. Python's function needs the interpreter's lock. */
static int64_t whorl_native_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Read a small file about a thread of this process; the text is empty if it cannot be read. Python's
   functions need the interpreter's lock. */
static void whorl_native_read(int thread, const char *name, char *text, size_t size) {
    char path[64];
    ssize_t got = -1;
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", thread, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, size - 1);
        close(fd);
    }
    text[got > 0 ? got : 0] = 0;
}

/* Return the memory of the recording where it has what is seen without the lock; NULL: there is none. Writing
   there needs no lock of Python's. */
static whorl_blind *whorl_native_blind(void) {
    char *memory = whorl_native.recording.buf;
    return memory == NULL ? NULL : (whorl_blind *)(memory + WHORL_BLIND_AT);
}

/* Write a note into the recording. The innermost lines of a stack that is too long stay. As above. */
static void whorl_native_record_note(const whorl_place *place, const whorl_note *note) {
    whorl_blind *blind = whorl_native_blind();
    size_t length = strlen(note->stack);
    if (blind == NULL)
        return;
    __atomic_store_n(&blind->since, 0, __ATOMIC_RELEASE); /* A reader takes nothing while it changes. */
    if (length > 0 || blind->thread != place->thread) {
        blind->length = (int64_t)(length < sizeof blind->stack ? length : sizeof blind->stack);
        memcpy(blind->stack, note->stack, (size_t)blind->length);
    }
    blind->seen = note->when;
    blind->thread = place->thread;
    memcpy(blind->syscall, note->syscall, sizeof blind->syscall);
    __atomic_store_n(&blind->since, place->since, __ATOMIC_RELEASE);
}

/* Read a number that another thread counts. */
static int64_t whorl_native_get(const whorl_seen_number *number) {
    return __atomic_load_n(number, __ATOMIC_RELAXED);
}

/* Note what a stalled thread does, and its stack if the loop has not gone on meanwhile. As above. */
static void whorl_native_note(int index, whorl_place *place, int64_t now) {
    whorl_note *note;
    if (whorl_native.note_count == WHORL_NOTES)
        return; /* The Python thread takes them when it has the lock again. */
    note = whorl_native_notes + whorl_native.note_count++;
    note->place = index;
    note->when = now;
    whorl_native_read(place->thread, "syscall", note->syscall, sizeof note->syscall);
    if (!whorl_native.reads_stacks || !whorl_read_stack(place->thread, note->stack, sizeof note->stack) ||
        whorl_native_get(place->turns) != place->latest.turns ||
        whorl_native_get(place->callbacks) != place->latest.callbacks)
        note->stack[0] = 0;
    whorl_native_record_note(place, note);
}

/* Read how long a thread has run, and how long it has waited for a processor; -1: the system does not tell.
   `times` is the descriptor of its schedstat or -1. Python's functions need the interpreter's lock. */
static void whorl_native_read_times(int thread, int times, int64_t *ran, int64_t *starved) {
    struct timespec clock;
    char text[100], *next;
    ssize_t got = times < 0 ? -1 : pread(times, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = 0;
    *ran = strtoll(text, &next, 10);
    *starved = strtoll(next, &next, 10);
    if (strtoll(next, NULL, 10) == 0) /* the slices; without CONFIG_SCHED_INFO all are 0 */
        *ran = *starved = -1;
    /* The clock of another thread's processor time (man 3 clock_getcpuclockid; here for one thread). */
    if (clock_gettime((clockid_t)(~(unsigned)thread << 3 | 6), &clock) == 0)
        *ran = (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
}

/* Look at a loop's numbers. As above. */
static whorl_look whorl_native_numbers(const whorl_place *place, int64_t now) {
    const whorl_look *former = &place->latest;
    int64_t run_began = whorl_native_get(place->run_began);
    int64_t idle;
    whorl_look look = {.when = now, .turns = whorl_native_get(place->turns),
        .callbacks = whorl_native_get(place->callbacks), .idle = whorl_native_get(place->idle),
        .sleep_began = whorl_native_get(place->sleep_began),
        .poll_ended = whorl_native_get(place->poll_ended),
        .is_turning = __atomic_load_n(place->is_turning, __ATOMIC_RELAXED)};
    idle = look.idle + (look.sleep_began ? now - look.sleep_began : 0);
    look.active = whorl_native_get(place->ran) + (run_began ? now - run_began : 0);
    look.active -= idle < look.active ? idle : look.active;
    if (look.sleep_began && look.is_turning && look.sleep_began == former->sleep_began) {
        look.ran = former->ran; /* It sleeps as before. */
        look.starved = former->starved;
    } else
        whorl_native_read_times(place->thread, place->times, &look.ran, &look.starved);
    return look;
}

/* Wake the Python thread, which may wait for the lock then. The mutex is held. */
static void whorl_native_tell(int64_t now) {
    if (whorl_native.woken != 0)
        return;
    whorl_native.woken = now;
    if (whorl_native.rests) {
        __atomic_store_n(&whorl_native.beat, now, __ATOMIC_RELAXED);
        pthread_cond_signal(&whorl_native.told);
    }
}

/* Look at one loop; return when to look again. As above. */
static int64_t whorl_native_look(int index, int64_t now, int is_blind) {
    whorl_place *place = whorl_native.places + index;
    whorl_look former = place->latest, look = place->latest = whorl_native_numbers(place, now);
    int64_t again, next, reached;
    if (!look.is_turning || look.sleep_began != 0) {
        place->since = 0;
        return now + whorl_native.interval;
    }
    if (place->since == 0 || look.turns != former.turns || look.callbacks != former.callbacks ||
        look.idle != former.idle) {
        place->before = former;
        place->since = now;
        place->earliest = former.when ? former.when : now;
        if (look.poll_ended > place->earliest && look.poll_ended < now)
            place->earliest = look.poll_ended;
        place->next = whorl_native.threshold;
        place->told = 0;
    }
    reached = place->earliest + whorl_native.threshold;
    /* Twice in an interval if it stays where it was, or if the threshold is shorter: so that the Python
       thread is woken early. And when the threshold is reached: else a call that lasts hardly longer has
       ended before its stack is taken. */
    again = now + whorl_native.interval / (place->since == now && now < reached ? 1 : 2);
    if (place->since != now && (place->told == 0 || now - place->told >= whorl_native.interval ||
                                (place->told < reached && now >= reached))) {
        if (!place->is_handed) {
            place->handed = place->before;
            place->is_handed = 1;
        }
        place->told = now;
        if (whorl_native.woken == 0)
            place->asked = look;
        whorl_native_tell(now);
    }
    if (is_blind && now - place->earliest >= place->next) {
        place->next = 2 * (now - place->earliest);
        whorl_native_note(index, place, now);
    }
    next = place->earliest + place->next;
    return next > now && next < again ? next : again;
}

/* Look again and again until told to end. Python's threads need the interpreter's lock. */
static void *whorl_native_run(void *nothing) {
    pthread_mutex_lock(&whorl_native.mutex);
    while (!whorl_native.ends) {
        int64_t now = whorl_native_now(), beat = __atomic_load_n(&whorl_native.beat, __ATOMIC_RELAXED);
        int64_t until = now + whorl_native.interval, again;
        int index;
        int is_blind = beat != 0 && now - beat > WHORL_LOCK_WAIT_NS;
        struct timespec when;
        if (whorl_native.recording.buf != NULL)
            __atomic_store_n((int64_t *)((char *)whorl_native.recording.buf + WHORL_ALIVE_AT), now,
                             __ATOMIC_RELAXED);
        for (index = 0; index < WHORL_PLACES; index++)
            if (whorl_native.places[index].turns != NULL) {
                again = whorl_native_look(index, now, is_blind);
                until = again < until ? again : until;
            }
        when.tv_sec = until / 1000000000;
        when.tv_nsec = until % 1000000000;
        pthread_cond_timedwait(&whorl_native.wake, &whorl_native.mutex, &when);
    }
    pthread_mutex_unlock(&whorl_native.mutex);
    return nothing;
}

/* Start the thread; return whether it runs. It gets no signals, as Python's handlers run in other threads.
   But it writes into a recording, whose guard needs SIGBUS. */
static int whorl_native_start(int64_t threshold, int64_t interval, int reads_stacks) {
    pthread_condattr_t clock;
    sigset_t all, former;
    int runs = 0;
    pthread_mutex_lock(&whorl_native.mutex);
    if (whorl_native.runs)
        goto end;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&whorl_native.wake, &clock);
    if (!whorl_native.is_told_made) /* A Python thread may wait for it while this one is started anew. */
        pthread_cond_init(&whorl_native.told, &clock);
    whorl_native.is_told_made = 1;
    pthread_condattr_destroy(&clock);
    whorl_native.threshold = threshold;
    whorl_native.interval = interval;
    whorl_native.reads_stacks = reads_stacks;
    whorl_native.ends = whorl_native.note_count = 0;
    if (!whorl_native.rests)
        __atomic_store_n(&whorl_native.beat, whorl_native_now(), __ATOMIC_RELAXED);
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    runs = whorl_native.runs = pthread_create(&whorl_native.thread, NULL, whorl_native_run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &former, NULL);
end:
    pthread_mutex_unlock(&whorl_native.mutex);
    return runs;
}

/* End the thread, and wait for its end, which needs no lock of Python's. Only one caller waits. */
static void whorl_native_stop(void) {
    int runs;
    pthread_mutex_lock(&whorl_native.mutex);
    runs = whorl_native.runs;
    if (runs == 1) {
        whorl_native.runs = WHORL_ENDING;
        whorl_native.ends = 1;
        pthread_cond_signal(&whorl_native.wake);
    }
    pthread_mutex_unlock(&whorl_native.mutex);
    if (runs != 1)
        return;
    pthread_join(whorl_native.thread, NULL);
    pthread_mutex_lock(&whorl_native.mutex);
    pthread_cond_destroy(&whorl_native.wake);
    whorl_native.runs = 0;
    memset(whorl_native.places, 0, sizeof whorl_native.places);
    pthread_mutex_unlock(&whorl_native.mutex);
}

/* Forget the thread: a forked child has none. It or another one may have held the mutex. The system calls
   this inside of `fork`, so that nobody in the child ever meets that mutex; there, no function of Python's
   may be called. */
static void whorl_native_in_child(void) {
    if (whorl_native.recording.obj != NULL)
        whorl_native_inherited = whorl_native.recording;
    memset(&whorl_native, 0, sizeof whorl_native);
    pthread_mutex_init(&whorl_native.mutex, NULL);
}

/* Let the system call that. Python's own hooks begin anew only where an inspector is. Without memory for it,
   these remain. */
static void whorl_native_follow_forks(void) {
    (void)pthread_atfork(NULL, NULL, whorl_native_in_child);
}

/* Let go of what is the parent's, with the interpreter's lock. */
static void whorl_native_forked(void) {
    whorl_native_in_child();
    PyBuffer_Release(&whorl_native_inherited);
}

/* Look at a loop from now on, by the addresses of its numbers; return its place, -1 if none is free. Python
   has no addresses. */
static int whorl_native_watch(whorl_place place) {
    int index = 0;
    pthread_mutex_lock(&whorl_native.mutex);
    while (index < WHORL_PLACES && whorl_native.places[index].turns != NULL)
        index++;
    if (index < WHORL_PLACES && whorl_native.runs == 1)
        whorl_native.places[index] = place;
    else
        index = -1;
    pthread_mutex_unlock(&whorl_native.mutex);
    return index;
}
#define WHORL_NATIVE_WATCH(state, loop, number, descriptor) \
    whorl_native_watch((whorl_place){.turns = &(state)->_turns, .callbacks = &(state)->_callbacks, \
                                     .idle = &(state)->_idle_ns, .sleep_began = &(state)->_sleep_began, \
                                     .poll_ended = &(state)->_now_ns, .ran = &(state)->_ran_ns, \
                                     .run_began = &(state)->_run_began, .is_turning = &(loop)->_is_turning, \
                                     .thread = number, .times = descriptor})

/* Look at a loop no more. Its memory may be freed afterwards. */
static void whorl_native_unwatch(int place) {
    pthread_mutex_lock(&whorl_native.mutex);
    if (place >= 0 && place < WHORL_PLACES)
        whorl_native.places[place] = (whorl_place){0};
    pthread_mutex_unlock(&whorl_native.mutex);
}

/* Return these times as a tuple. Python's functions give up the interpreter's lock for each file, and other
   threads keep it for 5 ms: what is seen before and after would be of two moments. */
static PyObject *whorl_native_times(int thread, int times) {
    int64_t ran, starved;
    whorl_native_read_times(thread, times, &ran, &starved);
    return Py_BuildValue("(LL)", (long long)ran, (long long)starved);
}

/* Return the text of a small file about a thread of this process, empty if it cannot be read. As above. */
static PyObject *whorl_native_file(int thread, PyObject *name) {
    char text[512];
    const char *file = PyUnicode_AsUTF8(name);
    if (file == NULL)
        return NULL;
    whorl_native_read(thread, file, text, sizeof text);
    return PyUnicode_DecodeASCII(text, (Py_ssize_t)strlen(text), "replace");
}

/* Read the stack of a thread so often; return the last one as text, empty if it could not be taken. Other
   threads of Python's go on meanwhile. Python can read frames only with the interpreter's lock. */
static PyObject *whorl_native_stack(int thread, int times) {
    char text[WHORL_STACK_SIZE];
    Py_BEGIN_ALLOW_THREADS
    do {
        pthread_mutex_lock(&whorl_native.mutex);
        whorl_read_stack(thread, text, sizeof text);
        pthread_mutex_unlock(&whorl_native.mutex);
    } while (--times > 0);
    Py_END_ALLOW_THREADS
    return PyUnicode_FromString(text);
}

/* Note that the Python thread has the lock; 0: it is busy and does not look. The native thread reads this. */
static void whorl_native_beat(int looks) {
    __atomic_store_n(&whorl_native.beat, looks ? whorl_native_now() : 0, __ATOMIC_RELAXED);
}

/* Let the Python thread sleep until then, or until there is something to tell; return when that was. The
   native thread wakes it, which has no lock of Python's. */
static int64_t whorl_native_rest(int64_t until) {
    struct timespec when = {until / 1000000000, until % 1000000000};
    int64_t due;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&whorl_native.mutex);
    __atomic_store_n(&whorl_native.beat, 0, __ATOMIC_RELAXED);
    whorl_native.rests = 1;
    if (whorl_native.woken != 0)
        whorl_native.woken = whorl_native_now(); /* This thread had the lock until now. */
    while (whorl_native.woken == 0 && whorl_native_now() < until)
        pthread_cond_timedwait(&whorl_native.told, &whorl_native.mutex, &when);
    due = whorl_native.woken ? whorl_native.woken : until;
    whorl_native.rests = whorl_native.woken = 0;
    __atomic_store_n(&whorl_native.beat, due, __ATOMIC_RELAXED); /* From then on it waits for the lock. */
    pthread_mutex_unlock(&whorl_native.mutex);
    Py_END_ALLOW_THREADS
    return due;
}

/* End that sleep, or the next one. */
static void whorl_native_wake(void) {
    pthread_mutex_lock(&whorl_native.mutex);
    whorl_native_tell(whorl_native_now());
    pthread_mutex_unlock(&whorl_native.mutex);
}

/* Return the last look before what a loop does, as a tuple, or None. The native thread made it. */
static PyObject *whorl_native_before(int index) {
    whorl_look look = {0};
    if (index >= 0 && index < WHORL_PLACES) {
        whorl_place *place = whorl_native.places + index;
        pthread_mutex_lock(&whorl_native.mutex);
        look = place->is_handed ? place->handed : place->since ? place->before : place->latest;
        place->is_handed = 0;
        pthread_mutex_unlock(&whorl_native.mutex);
    }
    if (look.when == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(Li(LLLiLL)LLL)", (long long)look.when, look.is_turning, (long long)look.turns,
                         (long long)look.callbacks, (long long)look.idle, 0, (long long)look.sleep_began,
                         (long long)look.poll_ended, (long long)look.active, (long long)look.ran,
                         (long long)look.starved);
}

/* Return when the Python thread was woken for a loop, and the times of the loop's thread then; or None. The
   native thread made that look. */
static PyObject *whorl_native_asked(int index) {
    whorl_look look = {0};
    if (index >= 0 && index < WHORL_PLACES) {
        pthread_mutex_lock(&whorl_native.mutex);
        look = whorl_native.places[index].asked;
        whorl_native.places[index].asked.when = 0;
        pthread_mutex_unlock(&whorl_native.mutex);
    }
    if (look.when == 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(LLL)", (long long)look.when, (long long)look.ran, (long long)look.starved);
}

/* Write into a recording from now on; None: write nowhere. The thread writes while Python's threads cannot.
   Raises what the memory's buffer does. */
static int whorl_native_record(PyObject *memory) {
    Py_buffer former, next = {0};
    if (memory != Py_None) {
        if (PyObject_GetBuffer(memory, &next, PyBUF_WRITABLE) < 0)
            return -1;
        if (next.len < 4096) {
            PyBuffer_Release(&next);
            PyErr_SetString(PyExc_ValueError, "a recording is longer");
            return -1;
        }
    }
    pthread_mutex_lock(&whorl_native.mutex);
    former = whorl_native.recording;
    whorl_native.recording = next;
    pthread_mutex_unlock(&whorl_native.mutex);
    PyBuffer_Release(&former);
    PyBuffer_Release(&whorl_native_inherited);
    return 0;
}

/* Forget in the recording what was seen without the lock: the Python thread knows more now. The native thread
   wrote it. */
static void whorl_native_clear(void) {
    whorl_blind *blind;
    pthread_mutex_lock(&whorl_native.mutex);
    blind = whorl_native_blind();
    if (blind != NULL)
        __atomic_store_n(&blind->since, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&whorl_native.mutex);
}

/* Return the oldest note as a tuple, or None. The native thread made it. */
static PyObject *whorl_native_take(void) {
    whorl_note note = {.place = -1};
    pthread_mutex_lock(&whorl_native.mutex);
    if (whorl_native.note_count > 0) {
        note = whorl_native_notes[0];
        memmove(whorl_native_notes, whorl_native_notes + 1, --whorl_native.note_count * sizeof note);
    }
    pthread_mutex_unlock(&whorl_native.mutex);
    if (note.place < 0)
        return Py_NewRef(Py_None);
    return Py_BuildValue("(iLss)", note.place, (long long)note.when, note.stack, note.syscall);
}

/* Let the system end the process at a signal. Python goes on to know its handler. */
static void whorl_native_end_at_once(int number) {
    signal(number, SIG_DFL);
}
