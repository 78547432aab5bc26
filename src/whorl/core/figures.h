/* Places of numbers in a histogram, and the memory of the histograms. */
#pragma once
#include <Python.h>
#include <stdint.h>

/* The place of a number that is not negative: 16 places for each power of two, the last one for all from
   2^40 on. Python does not know the instruction that finds the highest bit. */
static inline int whorl_place_of(int64_t number) {
    int shift;
    if (number < 32)
        return (int)number;
    if (number >= (int64_t)1 << 40)
        return 591;
    shift = 59 - __builtin_clzll((unsigned long long)number);
    return (shift << 4) + (int)(number >> shift);
}

/* One block that no loop uses: its memory is in the processor's cache, and a fresh one costs page faults. */
static void *whorl_spare_block;

/* Return a block of zeros, or NULL. All blocks have one size. Python cannot name memory. */
static inline void *whorl_new_block(size_t size) {
    void *block = __atomic_exchange_n(&whorl_spare_block, NULL, __ATOMIC_ACQ_REL);
    return block == NULL ? PyMem_RawCalloc(1, size) : memset(block, 0, size);
}

/* Keep a block as the spare one, and free the former. Python cannot name memory. */
static inline void whorl_keep_block(void *block) {
    if (block != NULL)
        PyMem_RawFree(__atomic_exchange_n(&whorl_spare_block, block, __ATOMIC_ACQ_REL));
}
