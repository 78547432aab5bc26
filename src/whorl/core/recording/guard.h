/* Memory that is a file of which somebody may make less.

   A load or a store behind the end of a mapped file raises SIGBUS, which ends the process. So there is a
   handler while such memory is guarded. It puts zeros into the place of all of the memory, and the same store
   is tried again. Whoever owns the memory finds later that its content is gone.

   It does nothing else. Any other SIGBUS goes to the handler that was there before, or ends the process. It
   makes only calls that such a handler may make. Nobody waits in it: two threads may both put zeros there. */
#pragma once
#include <Python.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include "whorl/core/threads.h"

#define WHORL_GUARDS 16
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

typedef struct {
    uintptr_t begin, size; /* 0: a free place */
    int is_lost;           /* whether zeros are put there, or were */
} whorl_guarded;

static whorl_guarded whorl_guards[WHORL_GUARDS]; /* The handler reads them at any time. */
static whorl_mutex whorl_guard_lock;             /* held while guards come and go */
static struct sigaction whorl_before_guard;      /* what was there before the handler */
static int whorl_guard_is_set;                   /* whether it was set, and not taken away since */

/* Put zeros into the place of memory if a signal says that it has lost its file; return whether it says so. A
   handler that was set over this one, as `faulthandler` does, may have got the signal first and raised it
   again, without an address. Then the kernel is asked whether the memory can be read. If it can be, because
   another thread has put zeros there meanwhile, what raised the signal can be tried again. */
static int whorl_cure(whorl_guarded *memory, const siginfo_t *info) {
    uintptr_t size = __atomic_load_n(&memory->size, __ATOMIC_ACQUIRE);
    uintptr_t begin = __atomic_load_n(&memory->begin, __ATOMIC_RELAXED);
    if (size == 0)
        return 0;
    if (info->si_code == SI_TKILL && info->si_pid == getpid()) {
        if (__atomic_load_n(&memory->is_lost, __ATOMIC_SEQ_CST) ||
            madvise((void *)begin, size, MADV_POPULATE_READ) == 0 || errno != EFAULT)
            return __atomic_load_n(&memory->is_lost, __ATOMIC_SEQ_CST);
    } else if (info->si_code != BUS_ADRERR || (uintptr_t)info->si_addr - begin >= size)
        return 0;
    __atomic_store_n(&memory->is_lost, 1, __ATOMIC_SEQ_CST); /* Before it can be read: see above. */
    if (mmap((void *)begin, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        __atomic_store_n(&memory->is_lost, 0, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&memory->is_lost, __ATOMIC_SEQ_CST);
}

/* Do what the system would do without this handler. */
static void whorl_hand_over(int number, siginfo_t *info, void *context) {
    struct sigaction before = whorl_before_guard;
    int is_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO; /* It comes again by itself. */
    if (before.sa_handler == SIG_IGN && !is_fault)
        return;
    if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN || before.sa_flags & (int)SA_RESETHAND)
        signal(number, SIG_DFL);
    if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        if (!is_fault)
            raise(number);
    } else if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else
        before.sa_handler(number);
}

/* Handle SIGBUS. */
static void whorl_bus_error(int number, siginfo_t *info, void *context) {
    int error = errno, index, is_cured = 0;
    for (index = 0; index < WHORL_GUARDS; index++)
        is_cured |= whorl_cure(whorl_guards + index, info);
    errno = error;
    if (!is_cured)
        whorl_hand_over(number, info, context);
}

/* Return whether this is the handler above. */
static int whorl_is_guard(const struct sigaction *action) {
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == whorl_bus_error;
}

/* Set the handler. One that was set over it may hand over to it, and would then get its own signals back. So
   it is not set over that one. */
static void whorl_set_guard(void) {
    struct sigaction now, guard = {.sa_sigaction = whorl_bus_error};
    if (sigaction(SIGBUS, NULL, &now) != 0 || whorl_is_guard(&now))
        return;
    if (whorl_guard_is_set && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
        return;
    whorl_before_guard = now;
    guard.sa_mask = now.sa_mask;
    guard.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & (SA_NODEFER | SA_RESTART));
    whorl_guard_is_set = sigaction(SIGBUS, &guard, NULL) == 0;
}

/* Take the handler away, unless another one was set over it. */
static void whorl_take_guard_away(void) {
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) == 0 && whorl_is_guard(&now)) {
        sigaction(SIGBUS, &whorl_before_guard, NULL);
        whorl_guard_is_set = 0;
    }
}

/* Return the first place of which this is so: that it is free, or that it is not; WHORL_GUARDS if none is. */
static int whorl_guard_place(int is_free) {
    int index = 0;
    while (index < WHORL_GUARDS && (whorl_guards[index].size == 0) != is_free)
        index++;
    return index;
}

/* Guard memory that is mapped as a whole; return its place, from 1, or 0 if there is none free. Raises what
   its buffer does. */
static int whorl_guard(PyObject *memory) {
    Py_buffer buffer;
    int index;
    if (PyObject_GetBuffer(memory, &buffer, PyBUF_WRITABLE) < 0)
        return -1;
    whorl_lock(&whorl_guard_lock);
    index = whorl_guard_place(1);
    if (index < WHORL_GUARDS) {
        whorl_guarded *place = whorl_guards + index;
        __atomic_store_n(&place->begin, (uintptr_t)buffer.buf, __ATOMIC_RELAXED);
        __atomic_store_n(&place->is_lost, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&place->size, (uintptr_t)buffer.len, __ATOMIC_RELEASE);
        whorl_set_guard();
    }
    whorl_unlock(&whorl_guard_lock);
    PyBuffer_Release(&buffer);
    return index < WHORL_GUARDS ? index + 1 : 0;
}

/* Guard it no more: its addresses may be others' from now on. */
static void whorl_unguard(int place) {
    if (place <= 0)
        return;
    whorl_lock(&whorl_guard_lock);
    __atomic_store_n(&whorl_guards[place - 1].size, 0, __ATOMIC_RELEASE);
    if (whorl_guard_place(0) == WHORL_GUARDS)
        whorl_take_guard_away();
    whorl_unlock(&whorl_guard_lock);
}
