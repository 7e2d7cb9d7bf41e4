/* The simulated machine: PsPIN's 4 clusters of 8 HPUs. */
#ifndef SPIN_HW_CONF_H
#define SPIN_HW_CONF_H

#define NUM_CLUSTERS 4
#define NUM_CORES 8 /* HPUs per cluster */

/* Bits of a message id in PsPIN. Here ids have 32 bits, and the lower 8 select the message's queue. */
#define C_MSGID_WIDTH 10

/* Start of the host memory of trace files. */
#define PCIE_START_ADDR 0x1000000000000000ULL

/* L1 of cluster c is at L1_CLUSTER_BASE + c * L1_CLUSTER_STRIDE. */
#define L1_CLUSTER_BASE 0x10000000
#define L1_CLUSTER_STRIDE 0x400000
#define L1_SIZE 0x100000
#define L1_CLUSTER_ACTUAL_MEM_SIZE L1_SIZE

/* Parts of L1: the runtime of PsPIN, and packets of a cluster's tasks. */
#define L1_RUNTIME_OFFSET 0x400
#define L1_RUNTIME_SIZE 0x4000
#define L1_PKT_BUFF_OFFSET 0xd000
#define L1_PKT_BUFF_SIZE 0x8000

/* The scratchpad area of a cluster begins at this offset in L1. scratchpad_addr of spin_ec_t are offsets in this area. */
#define L1_SCRATCHPAD_OFFSET 0x15000
#define L1_SCRATCHPAD_SIZE 0xeb000

/* Handler memory. */
#define L2_HND_BUFF_START 0x1c300000
#define L2_HND_BUFF_SIZE 0x100000

/* Packets in L2. */
#define L2_PKT_BUFF_START 0x1c400000
#define L2_PKT_BUFF_SIZE 0x400000

#define PROG_MEM_START 0x1d000000
#define PROG_MEM_SIZE 0x8000

/* Maximum bytes of a packet. */
#define MAX_PKT_BYTES 4096

#endif
