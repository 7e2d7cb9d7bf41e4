/* What a handler is given, and the names by which spind finds handlers. */
#ifndef SPIN_TASK_H
#define SPIN_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spin_device.h"
#include "spin_regs.h"
#include "spin_verdict.h"

/* The task: plain memory, written anew for each one. */
typedef struct task {
    uint32_t handler_mem;      /* handler memory: state of the context, kept from packet to packet */
    uint32_t handler_mem_size; /* its bytes */
    uint32_t pkt_mem;          /* the packet in L1, Ethernet header first */
    uint32_t pkt_mem_size;     /* bytes of it in L1: the whole frame unless the context asked for less */
    uint32_t scratchpad[SPIN_MAX_CLUSTERS];      /* scratchpad of this context in each cluster's L1 */
    uint32_t scratchpad_size[SPIN_MAX_CLUSTERS]; /* their bytes */
    uint32_t host_mem_high; /* host memory: address as the application knows it, upper half */
    uint32_t host_mem_low;  /* lower half */
    uint32_t host_mem_size; /* its bytes, 0 for none */
    uint32_t l2_pkt_mem;    /* the same packet in L2: see spin_packet.h on which copy to use */
    uint32_t home_cluster_id; /* the message's: its tasks run there, and payload tasks elsewhere while its HPUs are taken */
    uint32_t flow_id;         /* index of the message's queue, not an id of the message */
} task_t;

/* Argument of every handler. */
typedef struct handler_args {
    task_t *task;
    uint32_t hpu_gid;    /* HPU in the machine */
    uint32_t cluster_id; /* its cluster */
    uint32_t hpu_id;     /* HPU in that cluster */
} handler_args_t;

/* The entry points. Each is optional, one at least must be defined; they are found by these names.
 * header: once per message, on its first packet, before any payload handler of the message.
 * payload: once per packet, the first included.
 * completion: once per message, after all its payload handlers have ended; sees the last packet.
 * They return nothing, or a verdict: see spin_verdict.h. */
#ifdef __cplusplus
extern "C" {
#endif
spin_result_t header_handler(handler_args_t *args);
spin_result_t payload_handler(handler_args_t *args);
spin_result_t completion_handler(handler_args_t *args);
#ifdef __cplusplus
}
#endif

/* Puts a variable into handler memory, where all packets of all contexts of the image find it. */
#define SPIN_HANDLER_DATA __attribute__((section(".l2_handler_data")))

/* Start of the context's host memory: by the task, for who has changed the packet and would else look for the task anew. */
static inline uint64_t spin_task_host_mem(const task_t *task) {
    return (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
}
static inline uint64_t spin_host_mem(const handler_args_t *args) { return spin_task_host_mem(args->task); }

/* Scratchpad of the cluster that this handler runs on. */
static inline void *spin_scratchpad(const handler_args_t *args) {
    return (void *)args->task->scratchpad[args->cluster_id % SPIN_MAX_CLUSTERS];
}

/* Ends the handler and reports `code` (for people: spinctl stats shows it as reported by the handler). */
static inline void spin_report_error(uint32_t code) { *spin_reg(SPIN_REG_ERROR) = code; }

#endif
