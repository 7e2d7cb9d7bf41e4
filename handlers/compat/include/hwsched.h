/* The HPU driver page: what the hardware scheduler tells of a task, and the command unit.
 *
 * The page's offsets have names in spin_regs.h. */
#ifndef SPIN_HWSCHED_H
#define SPIN_HWSCHED_H

#include <stddef.h>
#include <stdint.h>

#include "spin_conf.h"
#include "spin_device.h"
#include "spin_regs.h"

/* Registers by their addresses. */
#define HWSCHED_HANDLER_FUN_ADDR 0x1B205000
#define HWSCHED_HANDLER_FUN_SIZE 0x1B205004
#define HWSCHED_HANDLER_MEM_ADDR 0x1B205008
#define HWSCHED_HANDLER_MEM_SIZE 0x1B20500C
#define HWSCHED_DOORBELL 0x1B205050
#define HWSCHED_ERROR 0x1B205054
#define CMD_ISSUE 0x1B205080
#define CMD_WAIT 0x1B205084
#define CMD_TEST 0x1B205088
#define CMD_INFO 0x1B20508C
#define CMD_WORD0 0x1B205090
#define CMD_WORD1 0x1B205094
#define CMD_WORD2 0x1B205098
#define CMD_WORD3 0x1B20509C
#define CMD_WORD4 0x1B2050A0
#define CMD_WORD5 0x1B2050A4
#define CMD_WORD6 0x1B2050A8

#define MMIO_READ(address) (*(volatile uint32_t *)(address))
#define MMIO_WRITE(address, value) (*(volatile uint32_t *)(address) = (uint32_t)(value))

/* The machine's registers have room for four clusters; where there are fewer the words are not used. */
#define SPIN_OTHER_CLUSTERS (SPIN_MAX_CLUSTERS - SPIN_MACHINE_CLUSTERS)

/* A task: memory that is written for each one. Writes to it are lost with the task. */
typedef struct task {
    void *handler_mem;       /* handler memory: state of the context, kept from packet to packet */
    size_t handler_mem_size; /* its bytes */
    void *pkt_mem;           /* the packet in L1 */
    size_t pkt_mem_size;     /* bytes of it that were copied to L1 */
    void *scratchpad[SPIN_MACHINE_CLUSTERS]; /* the context's scratchpad in each cluster's L1 */
#if SPIN_MACHINE_CLUSTERS < 4
    uint32_t no_scratchpad[SPIN_OTHER_CLUSTERS];
#endif
    size_t scratchpad_size[SPIN_MACHINE_CLUSTERS]; /* their bytes */
#if SPIN_MACHINE_CLUSTERS < 4
    uint32_t no_scratchpad_size[SPIN_OTHER_CLUSTERS];
#endif
    uint32_t host_mem_high; /* host memory: address as the application knows it, upper half */
    uint32_t host_mem_low;  /* lower half */
    size_t host_mem_size;   /* its bytes, 0 for none */
    void *l2_pkt_mem;       /* the packet in L2 */
    uint32_t home_cluster_id; /* the message's: payload tasks may run elsewhere while its HPUs are taken */
    uint32_t flow_id;         /* index of the message's queue */
} __attribute__((packed)) task_t;

/* Argument of every handler. */
typedef struct handler_args {
    task_t *task;
    uint32_t hpu_gid;    /* HPU in the machine */
    uint32_t cluster_id; /* its cluster */
    uint32_t hpu_id;     /* HPU in that cluster */
} handler_args_t;

typedef void (*handler_fn)(handler_args_t *);

#endif
