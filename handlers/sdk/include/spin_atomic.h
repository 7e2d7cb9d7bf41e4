/* Atomic read-modify-write of words in NIC memory: one AMO instruction each, the former value back.
 *
 * Handlers of different packets run at the same time on different HPUs, so what they share is changed by these. They
 * are relaxed: each is atomic, but orders nothing around it. Where bytes are guarded by a word, lock it. */
#ifndef SPIN_ATOMIC_H
#define SPIN_ATOMIC_H

#include <stdint.h>

static inline uint32_t spin_amo_add(uint32_t *at, uint32_t value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
static inline uint32_t spin_amo_and(uint32_t *at, uint32_t value) {
    return __atomic_fetch_and(at, value, __ATOMIC_RELAXED);
}
static inline uint32_t spin_amo_or(uint32_t *at, uint32_t value) {
    return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);
}
static inline uint32_t spin_amo_xor(uint32_t *at, uint32_t value) {
    return __atomic_fetch_xor(at, value, __ATOMIC_RELAXED);
}
static inline uint32_t spin_amo_swap(uint32_t *at, uint32_t value) {
    return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}

/* Adds to a word whose former value nobody wants. With SPIN_HOME defined (spin-cc -DSPIN_HOME) this is a plain addition,
 * which compilers vectorise. That is right for words in the own cluster's L1 and contexts whose tasks all run on their
 * home cluster's thread, `placement = "home"`, and for nothing else: additions of others get lost then. */
static inline void spin_add(uint32_t *at, uint32_t value) {
#ifdef SPIN_HOME
    *at += value;
#else
    spin_amo_add(at, value);
#endif
}

/* A lock is a word that starts as zero. What is done between the two stays between them. A handler that is ended while
 * it holds a lock leaves it locked: check what can fail before locking. */
static inline void spin_lock(uint32_t *lock) {
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) {}
}
static inline void spin_unlock(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

#endif
