/* Requests of a handler to its host program, and counters that it reads (FPsPIN).
 *
 * Each HPU has a page of host memory: a flag at its start, what is asked at HOST_PLD_ADDR. The host answers by writing the
 * flag's dma_id to __host_data.flag[HPU] in NIC memory. */
#ifndef SPIN_SPIN_HOST_H
#define SPIN_SPIN_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "hwsched.h"
#include "pspin.h"
#include "spin_conf.h"
#include "spin_dma.h"

#ifndef SPIN_ABI_FPSPIN
#error "spin_host.h is FPsPIN's: compile with SPIN_ABI_FPSPIN (spin-cc --abi fpspin)"
#endif

/* The HPU's number in the machine. */
#define HPU_ID(args) ((args)->cluster_id * NB_CORES + (args)->hpu_id)
/* Host memory; this HPU's page of it; its payload. */
#define HOST_ADDR(args) ((uint64_t)(args)->task->host_mem_high << 32 | (args)->task->host_mem_low)
#define HOST_PAGE_SIZE 4096u
#define HOST_ADDR_HPU(args) (HOST_ADDR(args) + (uint64_t)HPU_ID(args) * HOST_PAGE_SIZE)
#define DMA_ALIGN 64
#define HOST_PLD_ADDR(args) (HOST_ADDR_HPU(args) + DMA_ALIGN)

/* What a handler tells the host, and the host the handler: seven bytes of a doubleword. */
typedef struct fpspin_flag {
    uint8_t dma_id; /* changes with each request; the answer has the same */
    uint32_t len;   /* bytes of payload */
    uint16_t hpu_id;
} __attribute__((packed)) fpspin_flag_t;

typedef struct fpspin_counter {
    uint32_t sum;
    uint32_t count;
} fpspin_counter_t;

#define SPIN_HOST_COUNTERS 16

/* What the host reads and writes in NIC memory: the image's data begins with it. */
typedef struct fpspin_host_data {
    volatile uint64_t flag[CORE_COUNT];
    fpspin_counter_t counters[SPIN_HOST_COUNTERS];
} fpspin_host_data_t;

#ifdef __cplusplus
extern "C" {
#endif
extern fpspin_host_data_t __host_data;
/* Ids of the latest requests. */
extern uint8_t spin_host_requests[CORE_COUNT];
#ifdef __cplusplus
}
#endif

/* Whether there is a page of host memory for each HPU. */
static inline bool fpspin_check_host_mem(const handler_args_t *args) {
    return args->task->host_mem_size >= CORE_COUNT * HOST_PAGE_SIZE;
}

/* Tells the host that `len` bytes are at HOST_PLD_ADDR, and waits for its answer, which is returned. */
static inline fpspin_flag_t fpspin_host_req(const handler_args_t *args, uint32_t len) {
    uint32_t hpu = HPU_ID(args);
    uint8_t id = ++spin_host_requests[hpu];
    spin_cmd_t handle;
    uint64_t asked = (uint64_t)(uint16_t)hpu << 40 | (uint64_t)len << 8 | id;
    spin_write_to_host(HOST_ADDR_HPU(args), asked, &handle);
    /* The lower word: a handler that polls one word is left meanwhile. */
    volatile uint32_t *flag = (volatile uint32_t *)&__host_data.flag[hpu];
    while ((uint8_t)*flag != id) {}
    __asm__ volatile("fence" ::: "memory");
    uint32_t low = flag[0], high = flag[1];
    fpspin_flag_t answer = {id, low >> 8 | high << 24, (uint16_t)(high >> 8)};
    return answer;
}

/* The cycle counter, by an environment call as FPsPIN's runtime has it. */
static inline uint32_t cycles(void) {
    register uint32_t number __asm__("a7") = 1;
    register uint32_t value __asm__("a0");
    __asm__ volatile("ecall" : "=r"(value) : "r"(number));
    return value;
}

/* Counts a value. */
static inline void push_counter(volatile fpspin_counter_t *counter, uint32_t value) {
    amo_add(&counter->sum, value);
    amo_add(&counter->count, 1);
}

#endif
