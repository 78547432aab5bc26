/* What ThreadSanitizer is told of the numbers that one thread writes and others look at. */
#pragma once
#include <stdint.h>

#ifdef __SANITIZE_THREAD__

unsigned int __tsan_atomic32_load(const volatile void *, int);
unsigned int __tsan_atomic32_fetch_add(volatile void *, unsigned int, int);
unsigned long __tsan_atomic64_load(const volatile void *, int);
unsigned long __tsan_atomic64_fetch_add(volatile void *, unsigned long, int);

/* It calls these before each access of a volatile number. To it such an access is an atomic one, in no order.
   So a plain access beside it is reported. The addition of 0 changes nothing: one thread alone writes. */
#define WHORL_TELL(bits, bytes)                                                                   \
    __attribute__((weak, no_sanitize("thread"))) void __tsan_volatile_read##bytes(void *place) {  \
        __tsan_atomic##bits##_load(place, __ATOMIC_RELAXED);                                      \
    }                                                                                             \
    __attribute__((weak, no_sanitize("thread"))) void __tsan_volatile_write##bytes(void *place) { \
        __tsan_atomic##bits##_fetch_add(place, 0, __ATOMIC_RELAXED);                              \
    }
WHORL_TELL(32, 4)
WHORL_TELL(64, 8)

#endif
