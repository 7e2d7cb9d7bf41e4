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
#include "pspin_rt.h"
#include "spin_conf.h"
#include "spin_dma.h"

#ifndef SPIN_ABI_FPSPIN
#error "spin_host.h is FPsPIN's: compile with SPIN_ABI_FPSPIN (spin-cc --abi fpspin)"
#endif

/* The HPU's number in the machine. */
#define HPU_ID(args) ((args)->hpu_gid)
/* Host memory; this HPU's page of it; its payload. */
#define HOST_ADDR(args) ((uint64_t)(args)->task->host_mem_high << 32 | (args)->task->host_mem_low)
#define HOST_ADDR_HPU(args) (HOST_ADDR(args) + (uint64_t)HPU_ID(args) * PAGE_SIZE)
#define DMA_BUS_WIDTH 512
#define DMA_ALIGN (DMA_BUS_WIDTH / 8)
#define HOST_PLD_ADDR(args) (HOST_ADDR_HPU(args) + DMA_ALIGN)

/* What a handler tells the host, and the host the handler: a doubleword. */
typedef union fpspin_flag {
    struct {
        uint8_t dma_id; /* changes with each request; the answer has the same */
        uint32_t len;   /* bytes of payload */
        uint16_t hpu_id;
    } __attribute__((packed));
    uint64_t data;
} fpspin_flag_t;

#ifdef __cplusplus
extern "C" {
#endif
/* Ids of the latest requests of the cluster's HPUs: each cluster has its own, in L1. */
extern volatile uint8_t dma_idx[NUM_CLUSTER_HPUS];
#ifdef __cplusplus
}
#endif

/* Whether there is a page of host memory for each HPU. */
static inline bool fpspin_check_host_mem(const handler_args_t *args) {
    return args->task->host_mem_size >= CORE_COUNT * PAGE_SIZE;
}

/* Tells the host that `len` bytes are at HOST_PLD_ADDR, and waits for its answer, which is returned. */
static inline fpspin_flag_t fpspin_host_req(const handler_args_t *args, uint32_t len) {
    uint32_t hpu = HPU_ID(args);
    uint8_t id = (uint8_t)(dma_idx[args->hpu_id] + 1);
    dma_idx[args->hpu_id] = id;
    fpspin_flag_t flag;
    flag.data = (uint64_t)(uint16_t)hpu << 40 | (uint64_t)len << 8 | id;
    spin_write_to_host(HOST_ADDR_HPU(args), flag.data, NULL);
    /* The lower word: a handler that polls one word is left meanwhile. */
    volatile uint32_t *answer = (volatile uint32_t *)&__host_data.flag[hpu];
    while ((uint8_t)*answer != id) {}
    asm_mem_fence();
    flag.data = (uint64_t)answer[1] << 32 | answer[0];
    return flag;
}

#endif
