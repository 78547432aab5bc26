/* Several threads at once, without the GIL. With it, all of this is nothing: no instruction, no byte. */
#pragma once
#include "whorl/core/references.h"

#ifdef Py_GIL_DISABLED
#include "whorl/core/thread_sanitizer.h"

/* A lock that is held for a few instructions, in which no code of the program runs. Memory of zeros is an
   open one. */
typedef PyMutex whorl_mutex;
#define whorl_lock(mutex) PyMutex_Lock(mutex)
#define whorl_unlock(mutex) PyMutex_Unlock(mutex)

/* All that this thread stored before is seen by others before this thread looks at anything after it. Two
   threads that each store, pass this and look at the other's store cannot both miss it. */
#define whorl_barrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* Numbers that several threads read and write without a lock. Each look and each change is one step, and all
   threads see all such steps in one order. What a thread did before a change is seen by those who see it. A
   look costs nothing more, a change waits until others can see it. */
typedef _Atomic int whorl_shared_int;
typedef _Atomic unsigned char whorl_shared_byte;
typedef _Atomic unsigned long whorl_shared_thread;

/* Numbers that one thread writes and others look at, or that several write, each of them a right one. Each
   look and each change is one instruction of a processor of 64 bits, so nobody sees a part of a change. They
   have no order, and cost what plain ones cost. */
typedef volatile int64_t whorl_seen_number;
typedef volatile Py_ssize_t whorl_seen_size;
typedef volatile int whorl_seen_int;

/* A variable of C that each thread has for itself. */
#define WHORL_PER_THREAD _Thread_local

/* Return the next of the numbers that all threads share. Python's integers cannot be counted up in one
   step. */
static inline int64_t whorl_next_number(int64_t *last) {
    return __atomic_add_fetch(last, 1, __ATOMIC_RELAXED);
}

#else

typedef struct {} whorl_mutex;
#define whorl_lock(mutex) ((void)(mutex))
#define whorl_unlock(mutex) ((void)(mutex))
#define whorl_barrier() ((void)0)
typedef int whorl_shared_int;
typedef unsigned char whorl_shared_byte;
typedef unsigned long whorl_shared_thread;
typedef int64_t whorl_seen_number;
typedef Py_ssize_t whorl_seen_size;
typedef int whorl_seen_int;
#define WHORL_PER_THREAD
#define whorl_next_number(last) (++*(last))

#endif
