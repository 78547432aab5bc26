/* The arithmetic of chance, modulo 2**64. Python's integers grow instead, and Cython has no such literals. */
#pragma once
#include <stdint.h>

/* Return 64 bits that depend on all bits of both numbers: the finalizer of splitmix64. In Python, this makes
   ten integers. */
static inline uint64_t whorl_split(uint64_t base, uint64_t count) {
    uint64_t bits = base + count * 0x9E3779B97F4A7C15u;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    return bits ^ (bits >> 31);
}

/* Return a number from 1 to n-1 with probability p, else 0. It takes its bits out of 64, as the function
   above makes them. */
static inline int64_t whorl_drawn(uint64_t base, uint64_t number, double p, int64_t n) {
    uint64_t bits = whorl_split(base, number);
    if (n < 2 || (double)(bits & 0xFFFFFFFFu) >= p * 4294967296.0)
        return 0;
    return 1 + (int64_t)((bits >> 32) % (uint64_t)(n - 1));
}
