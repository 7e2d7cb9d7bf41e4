/* Copies within NIC memory, commands to NIC and host, locks.
 *
 * Waiting for a command is optional: a task is not complete before its commands are. All functions return SPIN_OK, or SPIN_FAIL where
 * that is said. */
#ifndef SPIN_SPIN_DMA_H
#define SPIN_SPIN_DMA_H

#include <stdbool.h>
#include <stdint.h>

#include "hwsched.h"
#include "pspin.h"
#include "spin_device.h"

/* Names a copy within NIC memory. */
typedef uint32_t spin_dma_t;

/* Which way spin_dma goes: from L2 to L1, or from L1 to L2. Addresses say so too, so it makes no difference. */
#define SPIN_DMA_LOC2EXT 0
#define SPIN_DMA_EXT2LOC 1

static inline volatile uint32_t *spin_cluster_dma_reg(uint32_t offset) {
    return (volatile uint32_t *)(SPIN_CLUSTER_DMA_BASE + offset);
}

/* Copies `size` bytes from `source` to `destination`, both in NIC memory. One that reaches beyond the task's memory ends the
 * handler. `options` is for the engine's bursts and not looked at. SPIN_FAIL: of 0 bytes there is no copy. */
static inline int spin_dma(const volatile void *source, volatile void *destination, uint32_t size, int direction, int options,
                           spin_dma_t *xfer) {
    (void)direction;
    if (size == 0) return SPIN_FAIL;
    __asm__ volatile("" ::: "memory");
    *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_SOURCE) = (uint32_t)(uintptr_t)source;
    *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_SOURCE_HIGH) = 0;
    *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_DESTINATION) = (uint32_t)(uintptr_t)destination;
    *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_DESTINATION_HIGH) = 0;
    *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_BYTES) = size;
    *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_CONFIG) = (uint32_t)options;
    spin_dma_t launched = *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_LAUNCH);
    if (xfer) *xfer = launched;
    __asm__ volatile("" ::: "memory");
    return SPIN_OK;
}

static inline bool spin_dma_is_done(spin_dma_t xfer) {
    bool done = xfer <= *spin_cluster_dma_reg(SPIN_CLUSTER_DMA_DONE);
    __asm__ volatile("" ::: "memory");
    return done;
}

/* Whether the copy is complete: 1 or 0. */
static inline int spin_dma_test(spin_dma_t xfer, uint32_t *completed) {
    *completed = spin_dma_is_done(xfer);
    return SPIN_OK;
}

/* Waits until it is. */
static inline int spin_dma_wait(spin_dma_t xfer) {
    while (!spin_dma_is_done(xfer)) {}
    return SPIN_OK;
}

/* The same copies under the names of the engine's library. The first returns the copy's id. */
static inline spin_dma_t spin__memcpy_nonblk(const volatile void *source, volatile void *destination, uint32_t size) {
    spin_dma_t xfer = 0;
    (void)spin_dma(source, destination, size, SPIN_DMA_EXT2LOC, 0, &xfer);
    return xfer;
}
static inline int spin__tf_completed(spin_dma_t xfer) { return spin_dma_is_done(xfer); }
static inline void spin__wait_for_tf_completion(spin_dma_t xfer) { (void)spin_dma_wait(xfer); }
static inline void spin__memcpy(const volatile void *source, volatile void *destination, uint32_t size) {
    spin__wait_for_tf_completion(spin__memcpy_nonblk(source, destination, size));
}

/* Copies by another cluster's engine. Which one copies makes no difference here: the own one does. */
static inline spin_dma_t spin__public_memcpy_nonblk(const volatile void *source, volatile void *destination, uint32_t size,
                                                    uint32_t cluster) {
    (void)cluster;
    return spin__memcpy_nonblk(source, destination, size);
}
static inline void spin__public_memcpy(const volatile void *source, volatile void *destination, uint32_t size, uint32_t cluster) {
    (void)cluster;
    spin__memcpy(source, destination, size);
}
static inline int spin__public_tf_completed(spin_dma_t xfer, uint32_t cluster) {
    (void)cluster;
    return spin__tf_completed(xfer);
}
static inline void spin__public_wait_for_tf_completion(spin_dma_t xfer, uint32_t cluster) {
    (void)cluster;
    spin__wait_for_tf_completion(xfer);
}

/* Issues the command whose words are w. The handle is stored unless the pointer to it is null. */
static inline int spin_cmd_issue(uint32_t info, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, uint32_t w4, spin_cmd_t *handle) {
    /* The device reads bytes that the compiler may still hold in registers. */
    __asm__ volatile("" ::: "memory");
    volatile uint32_t *words = spin_reg(SPIN_REG_COMMAND_WORDS);
    words[0] = w0;
    words[1] = w1;
    words[2] = w2;
    words[3] = w3;
    words[4] = w4;
    *spin_reg(SPIN_REG_COMMAND_INFO) = info;
    spin_cmd_t issued = *spin_reg(SPIN_REG_COMMAND_ISSUE);
    __asm__ volatile("" ::: "memory");
    if (handle != NULL) *handle = issued;
    return SPIN_OK;
}

/* Sends `length` bytes of NIC memory: a packet as handlers see packets, so from the IP header on for SPIN_ABI_PSPIN, from the
 * Ethernet header on for SPIN_ABI_FPSPIN. */
static inline int spin_send_packet(const volatile void *data, uint32_t length, spin_cmd_t *handle) {
    return spin_cmd_issue(SPIN_INFO_SEND, 0, 0, (uint32_t)(uintptr_t)data, 0, length, handle);
}

/* Puts `length` bytes on queue pair 1 of node `destination`. */
static inline int spin_rdma_put(uint32_t destination, const volatile void *data, uint32_t length, spin_cmd_t *handle) {
    return spin_cmd_issue(SPIN_INFO_SEND, destination, 1, (uint32_t)(uintptr_t)data, 0, length, handle);
}

/* Copies NIC memory to host memory; `event` tells the host. */
static inline int spin_dma_to_host(uint64_t host, uint32_t nic, uint32_t length, bool event, spin_cmd_t *handle) {
    return spin_cmd_issue(SPIN_INFO_DMA | (event ? SPIN_INFO_EVENT : 0), (uint32_t)host, (uint32_t)(host >> 32), nic, length,
                             SPIN_DMA_TO_HOST, handle);
}

/* Copies host memory to NIC memory; `event` tells the host. */
static inline int spin_dma_from_host(uint64_t host, uint32_t nic, uint32_t length, bool event, spin_cmd_t *handle) {
    return spin_cmd_issue(SPIN_INFO_DMA | (event ? SPIN_INFO_EVENT : 0), (uint32_t)host, (uint32_t)(host >> 32), nic, length,
                             SPIN_DMA_FROM_HOST, handle);
}

/* Writes eight bytes, given by value, to host memory. */
static inline int spin_write_to_host(uint64_t host, uint64_t value, spin_cmd_t *handle) {
    return spin_cmd_issue(SPIN_INFO_HOST_DIRECT, (uint32_t)host, (uint32_t)(host >> 32), 8 << 1 | SPIN_DMA_TO_HOST,
                             (uint32_t)value, (uint32_t)(value >> 32), handle);
}
#define spin_host_write spin_write_to_host

/* A lock: 0 when free. A handler that is ended while it holds one leaves it locked. */
typedef volatile uint32_t spin_lock_t;

static inline int spin_lock_init(spin_lock_t *lock) {
    *lock = 0;
    return SPIN_OK;
}
/* 1: the lock was taken; 0: another has it. */
static inline int spin_lock_try_lock(spin_lock_t *lock) { return amo_or(lock, 1) == 0; }
static inline int spin_lock_lock(spin_lock_t *lock) {
    while (!spin_lock_try_lock(lock)) futex_wait(lock, 1);
    return SPIN_OK;
}
static inline int spin_lock_unlock(spin_lock_t *lock) {
    amo_store(lock, 0);
    return SPIN_OK;
}

/* A lock that many readers can hold or one writer. The first reader takes `glock` and the last one gives it back, so a program that
 * sets `num_readers` before has readers that take none. */
typedef struct spin_rw_lock {
    spin_lock_t glock;
    volatile int32_t num_readers;
} spin_rw_lock_t;

static inline int spin_rw_lock_r_lock(spin_rw_lock_t *lock) {
    if (amo_add(&lock->num_readers, 1) + 1 == 1) spin_lock_lock(&lock->glock);
    return SPIN_OK;
}
static inline int spin_rw_lock_r_unlock(spin_rw_lock_t *lock) {
    if (amo_add(&lock->num_readers, -1) - 1 == 0) spin_lock_unlock(&lock->glock);
    return SPIN_OK;
}
static inline int spin_rw_lock_w_lock(spin_rw_lock_t *lock) { return spin_lock_lock(&lock->glock); }
static inline int spin_rw_lock_w_unlock(spin_rw_lock_t *lock) { return spin_lock_unlock(&lock->glock); }

#endif
