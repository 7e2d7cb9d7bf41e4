/* The HPU's atomic instructions, locks that wait, time.
 *
 * Atomics are sequentially consistent on spind whatever their bits say; the bits are set for the compiler's sake and the
 * reader's. Addresses are those of words in NIC memory, aligned. */
#ifndef SPIN_PSPIN_H
#define SPIN_PSPIN_H

#include <stdint.h>

#include "spin_conf.h"
#include "spin_regs.h"
#include "util.h"

#define MEM_ALIGNMENT 4
/* `n` rounded up to a multiple of the power of two `a`. */
#define ALIGN_UP(n, a) (((n) + (a) - 1) & ~((a) - 1))

#define DMA_MAX_XFER_SIZE 32768
#define DMA_NULL 0
typedef uint32_t dma_t;
typedef volatile uint32_t futex_t;

#define SPIN_AMO(name, type, instruction)                                                                 \
    static inline type amo_##name(volatile type *address, type value) {                                   \
        type before;                                                                                      \
        __asm__ volatile(instruction ".aqrl %0, %2, (%1)" : "=r"(before) : "r"(address), "r"(value) : "memory"); \
        return before;                                                                                    \
    }

/* Each returns the word that was there before. */
SPIN_AMO(swap, uint32_t, "amoswap.w")
SPIN_AMO(add, int32_t, "amoadd.w")
SPIN_AMO(and, uint32_t, "amoand.w")
SPIN_AMO(or, uint32_t, "amoor.w")
SPIN_AMO(xor, uint32_t, "amoxor.w")
SPIN_AMO(max, int32_t, "amomax.w")
SPIN_AMO(maxu, uint32_t, "amomaxu.w")
SPIN_AMO(min, int32_t, "amomin.w")
SPIN_AMO(minu, uint32_t, "amominu.w")

/* A store that is one of the atomics. */
static inline void amo_store(volatile uint32_t *address, uint32_t value) {
    __asm__ volatile("amoswap.w.aqrl x0, %1, (%0)" ::"r"(address), "r"(value) : "memory");
}

static inline void asm_mem_fence(void) { __asm__ volatile("fence" ::: "memory"); }

static inline uint32_t load_reserved(const volatile uint32_t *address) {
    uint32_t value;
    __asm__ volatile("lr.w.aqrl %0, (%1)" : "=r"(value) : "r"(address) : "memory");
    return value;
}

/* 0: stored; 1: the reservation was lost. */
static inline uint32_t store_conditional(volatile uint32_t *address, uint32_t value) {
    uint32_t failed;
    __asm__ volatile("sc.w.aqrl %0, %2, (%1)" : "=&r"(failed) : "r"(address), "r"(value) : "memory");
    return failed;
}

/* Tries once to store `desired` where `expected` is. 0: stored; -1: another value was there; above 0: the reservation was lost. */
static inline int32_t compare_and_swap(volatile uint32_t *address, uint32_t expected, uint32_t desired) {
    int32_t result;
    __asm__ volatile("   lr.w.aqrl %0, (%1)\n"
                     "   bne %0, %2, 1f\n"
                     "   sc.w.aqrl %0, %3, (%1)\n"
                     "   j 2f\n"
                     "1: li %0, -1\n"
                     "2:"
                     : "=&r"(result)
                     : "r"(address), "r"(expected), "r"(desired)
                     : "memory");
    return result;
}

/* Waiting for a word to change, and locks made of it. HPUs have nobody to sleep for: a waiting handler polls, and spind leaves it
 * meanwhile. Waking is the change itself. */
static inline void futex_wait(futex_t *address, uint32_t while_it_is) {
    while (*address == while_it_is) {}
    asm_mem_fence();
}
static inline void futex_wake(futex_t *address) {
    (void)address;
    asm_mem_fence();
}
static inline void futex_init(futex_t *lock) { amo_store(lock, 0); }
/* 1: the lock was taken; 0: another has it. */
static inline int futex_try_lock(futex_t *lock) { return amo_swap(lock, 1) == 0; }
/* Both wait for the lock and return 1. */
static inline int futex_lock(futex_t *lock) {
    while (!futex_try_lock(lock)) futex_wait(lock, 1);
    return 1;
}
static inline int futex_lock_s(futex_t *lock) { return futex_lock(lock); }
static inline void futex_unlock(futex_t *lock) {
    amo_store(lock, 0);
    futex_wake(lock);
}

/* Passes time: the clock counts instructions. */
static inline void rt_time_wait_cycles(const unsigned cycles) {
    uint32_t start, now;
    read_csr(0xc00, start); /* cycle */
    do read_csr(0xc00, now);
    while (now - start < cycles);
}

#ifdef SPIN_ABI_FPSPIN

#define MAX_COUNTERS 16

struct perf_counter {
    uint32_t sum;
    uint32_t count;
};

/* What the host reads and writes in NIC memory: the image's data begins with it. */
struct host_data {
    uint64_t flag[CORE_COUNT];
    struct perf_counter counters[MAX_COUNTERS];
};

#ifdef __cplusplus
extern "C" {
#endif
extern volatile struct host_data __host_data;
#ifdef __cplusplus
}
#endif

/* The cycle counter, by an environment call as FPsPIN's runtime has it. */
static inline uint32_t cycles(void) {
    register uint32_t number __asm__("a7") = 1;
    register uint32_t value __asm__("a0");
    __asm__ volatile("ecall" : "=r"(value) : "r"(number));
    return value;
}

/* Counts a value. */
static inline void push_counter(volatile struct perf_counter *counter, uint32_t value) {
    amo_add((volatile int32_t *)&counter->sum, (int32_t)value);
    amo_add((volatile int32_t *)&counter->count, 1);
}

#endif

#endif
