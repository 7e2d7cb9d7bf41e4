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

#define SPIN_AMO(name, type, instruction)                                                                 \
    static inline type amo_##name(volatile void *address, type value) {                                   \
        type before;                                                                                      \
        __asm__ volatile(instruction ".aqrl %0, %2, (%1)" : "=r"(before) : "r"(address), "r"(value) : "memory"); \
        return before;                                                                                    \
    }

/* Each returns the word that was there before. */
SPIN_AMO(swap, uint32_t, "amoswap.w")
SPIN_AMO(add, uint32_t, "amoadd.w")
SPIN_AMO(and, uint32_t, "amoand.w")
SPIN_AMO(or, uint32_t, "amoor.w")
SPIN_AMO(xor, uint32_t, "amoxor.w")
SPIN_AMO(max, int32_t, "amomax.w")
SPIN_AMO(maxu, uint32_t, "amomaxu.w")
SPIN_AMO(min, int32_t, "amomin.w")
SPIN_AMO(minu, uint32_t, "amominu.w")

/* A store that is one of the atomics. */
static inline void amo_store(volatile void *address, uint32_t value) {
    __asm__ volatile("amoswap.w.aqrl x0, %1, (%0)" ::"r"(address), "r"(value) : "memory");
}

static inline uint32_t load_reserved(volatile void *address) {
    uint32_t value;
    __asm__ volatile("lr.w.aqrl %0, (%1)" : "=r"(value) : "r"(address) : "memory");
    return value;
}

/* 0: stored; else the reservation was lost. */
static inline uint32_t store_conditional(volatile void *address, uint32_t value) {
    uint32_t failed;
    __asm__ volatile("sc.w.aqrl %0, %2, (%1)" : "=&r"(failed) : "r"(address), "r"(value) : "memory");
    return failed;
}

/* Stores `desired` if `expected` is there, and returns what was there. */
static inline uint32_t compare_and_swap(volatile void *address, uint32_t expected, uint32_t desired) {
    uint32_t found, failed;
    __asm__ volatile("1: lr.w.aqrl %0, (%2)\n"
                     "   bne %0, %3, 2f\n"
                     "   sc.w.aqrl %1, %4, (%2)\n"
                     "   bnez %1, 1b\n"
                     "2:"
                     : "=&r"(found), "=&r"(failed)
                     : "r"(address), "r"(expected), "r"(desired)
                     : "memory");
    return found;
}

/* Waiting for a word to change, and locks made of it. HPUs have nobody to sleep for: a waiting handler polls, and spind leaves it
 * meanwhile. Waking is the change itself. */
static inline void futex_wait(volatile void *address, uint32_t while_it_is) {
    while (*(volatile uint32_t *)address == while_it_is) {}
    __asm__ volatile("fence" ::: "memory");
}
static inline void futex_wake(volatile void *address) {
    (void)address;
    __asm__ volatile("fence" ::: "memory");
}
static inline void futex_init(volatile void *lock) { amo_store(lock, 0); }
static inline int futex_try_lock(volatile void *lock) { return amo_swap(lock, 1) == 0; }
static inline void futex_lock(volatile void *lock) {
    while (!futex_try_lock(lock)) futex_wait(lock, 1);
}
static inline void futex_unlock(volatile void *lock) {
    amo_store(lock, 0);
    futex_wake(lock);
}

/* HPU within its cluster, and its cluster: from tp, which nothing else changes. */
static inline uint32_t user_core_id(void) {
    uint32_t id;
    __asm__("mv %0, tp" : "=r"(id));
    return id & 31;
}
static inline uint32_t user_cluster_id(void) {
    uint32_t id;
    __asm__("mv %0, tp" : "=r"(id));
    return id >> 5 & 63;
}

/* Passes time: the clock counts instructions. */
static inline void rt_time_wait_cycles(uint32_t cycles) {
    uint32_t start = read_csr(0xc00); /* cycle */
    while ((uint32_t)read_csr(0xc00) - start < cycles) {}
}

#endif
