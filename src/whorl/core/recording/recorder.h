/* Writing an event into the ring of a recording. */
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
