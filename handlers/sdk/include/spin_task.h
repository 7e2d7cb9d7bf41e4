/* Arguments of handlers, and the names by which spind finds handlers. */
#ifndef SPIN_TASK_H
#define SPIN_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spin_device.h"
#include "spin_regs.h"
#include "spin_verdict.h"

/* The task: plain memory, initialised for each task. */
typedef struct task {
    uint32_t handler_mem;      /* handler memory: state of the context, kept between packets */
    uint32_t handler_mem_size; /* bytes of handler memory */
    uint32_t pkt_mem;          /* packet in L1, Ethernet header first */
    uint32_t pkt_mem_size;     /* bytes of the packet in L1: the whole frame unless the context requested less */
    uint32_t scratchpad[SPIN_MAX_CLUSTERS];      /* address of the context's scratchpad in each cluster's L1 */
    uint32_t scratchpad_size[SPIN_MAX_CLUSTERS]; /* bytes of each scratchpad */
    uint32_t host_mem_high; /* host memory: upper half of the application's address */
    uint32_t host_mem_low;  /* host memory: lower half of the address */
    uint32_t host_mem_size; /* bytes of host memory, 0 for none */
    uint32_t l2_pkt_mem;    /* packet in L2; spin_packet.h says which copy to use */
    uint32_t home_cluster_id; /* cluster that runs the message's tasks; payload tasks may run elsewhere while its HPUs are busy */
    uint32_t flow_id;         /* index of the message's queue, not an id of the message; unique among open messages of the context */
} task_t;

/* Argument of every handler. */
typedef struct handler_args {
    task_t *task;
    uint32_t hpu_gid;    /* HPU number among all that run the context */
    uint32_t cluster_id; /* cluster of the HPU */
    uint32_t hpu_id;     /* HPU number in the cluster */
} handler_args_t;

/* The units that run a context, where it is installed with --units. Each unit has clusters, HPUs and message queues of its own. The words
 * lie behind the task. */
typedef struct spin_unit {
    uint16_t unit;   /* number of this unit, 0 to units - 1 */
    uint16_t units;  /* units that run the context: 1 unless it was installed with --units */
    uint32_t ranges; /* HPUs of a unit in the lowest byte, flow ids above it */
} spin_unit_t;

static inline const spin_unit_t *spin_unit_of(const handler_args_t *args) { return (const spin_unit_t *)(args->task + 1); }
static inline uint32_t spin_unit(const handler_args_t *args) { return spin_unit_of(args)->unit; }
static inline uint32_t spin_units(const handler_args_t *args) { return spin_unit_of(args)->units; }
/* Index ranges: unit n has hpu_gid from n * spin_unit_hpus and flow_id from n * spin_unit_flows on, as many each. No two tasks at a time
 * have one hpu_gid, and no two messages one flow_id, in whatever units and threads they run. */
static inline uint32_t spin_unit_hpus(const handler_args_t *args) { return spin_unit_of(args)->ranges & 0xff; }
static inline uint32_t spin_unit_flows(const handler_args_t *args) { return spin_unit_of(args)->ranges >> 8; }

/* The entry points, found by these names. Define at least one.
 * header: once per message, on its first packet, before any payload handler of the message.
 * payload: once per packet, including the first.
 * completion: once per message, on its last packet, after all its payload handlers have ended.
 * Handlers return nothing, or a verdict: see spin_verdict.h. */
#ifdef __cplusplus
extern "C" {
#endif
spin_result_t header_handler(handler_args_t *args);
spin_result_t payload_handler(handler_args_t *args);
spin_result_t completion_handler(handler_args_t *args);
#ifdef __cplusplus
}
#endif

/* Puts a variable into handler memory, where all packets of all contexts of the image share it. */
#define SPIN_HANDLER_DATA __attribute__((section(".l2_handler_data")))

/* Address of the context's host memory. The variant for a task suits handlers that changed the packet: the compiler need not
 * load the task's address again. */
static inline uint64_t spin_task_host_mem(const task_t *task) {
    return (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
}
static inline uint64_t spin_host_mem(const handler_args_t *args) { return spin_task_host_mem(args->task); }

/* Scratchpad of the cluster that this handler runs on. */
static inline void *spin_scratchpad(const handler_args_t *args) {
    return (void *)args->task->scratchpad[args->cluster_id % SPIN_MAX_CLUSTERS];
}

/* Ends the handler and reports `code`, which spinctl stats shows as reported by the handler. */
static inline void spin_report_error(uint32_t code) { *spin_reg(SPIN_REG_ERROR) = code; }

#endif
