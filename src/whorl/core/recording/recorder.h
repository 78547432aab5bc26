/* Writing into a recording: an event into its ring, and what is called now. */
#pragma once
#include <stdint.h>

/* Write an event, its kind last, and then count it. If the process is killed meanwhile, the place has no
   kind, and is no event. Python cannot order stores. */
static inline void whorl_put_event(int64_t *place, int64_t *written, int64_t at, int64_t took, int kind,
                                   int flags, int64_t loop, int64_t subject) {
    uint64_t word = (uint64_t)took | (uint64_t)kind << 32 | (uint64_t)flags << 40;
    word |= (uint64_t)(loop & 0xFFFF) << 48;
    __atomic_store_n(place + 1, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    place[0] = at;
    place[2] = subject;
    __atomic_store_n(place + 1, (int64_t)word, __ATOMIC_RELEASE);
    __atomic_store_n(written, *written + 1, __ATOMIC_RELEASE);
}

/* Tell what is called now: its beginning last, as another process reads them. Python cannot order stores.
   Each store is one of its own, too. The compiler would join two of them, and load both values at once; the
   processor then waits, as one of the two was written just before. */
static inline void whorl_write_call(int64_t *call, int64_t began, int64_t name, int64_t task) {
    __atomic_store_n(call + 1, name, __ATOMIC_RELAXED);
    __atomic_store_n(call + 2, task, __ATOMIC_RELAXED);
    __atomic_store_n(call, began, __ATOMIC_RELEASE);
}
