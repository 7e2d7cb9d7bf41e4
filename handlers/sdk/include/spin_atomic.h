/* Atomic read-modify-write of words in NIC memory: one AMO instruction each, which returns the former value.
 *
 * Handlers of different packets run concurrently on different HPUs, so they must change shared data by these functions. The
 * operations are relaxed: each is atomic, but orders no other access. Use a lock where a word guards other bytes. */
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

/* Adds to a word whose former value is not needed. With SPIN_HOME defined (spin-cc -DSPIN_HOME) this is a plain addition,
 * which compilers vectorise. A plain addition is correct only for words in the own cluster's L1, in contexts whose tasks all run
 * on their home cluster's thread (`placement = "home"`). Elsewhere it loses concurrent additions. */
static inline void spin_add(uint32_t *at, uint32_t value) {
#ifdef SPIN_HOME
    *at += value;
#else
    spin_amo_add(at, value);
#endif
}

/* A lock is a word that starts as zero. Accesses between spin_lock and spin_unlock stay between them. A handler that is ended
 * while it holds a lock leaves it locked: do everything that can fail before locking. */
static inline void spin_lock(uint32_t *lock) {
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) {}
}
static inline void spin_unlock(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

#endif
