/* Addresses and offsets of the HPU as handlers see them.
 *
 * The numbers are those of abi/src/regs.rs and abi/src/map.rs; a test of the package spin-handlers compares every one.
 * Device registers take aligned 32-bit accesses only; anything else ends the handler with a device fault. The printing
 * device is the exception: a byte a store.
 */
#ifndef SPIN_REGS_H
#define SPIN_REGS_H

/* A character stored here is printed by spind. */
#define SPIN_STDOUT_BASE 0x1a104000u
/* The HPU driver page. Its first part is task_t, plain memory; the registers below are the device. */
#define SPIN_DRIVER_BASE 0x1b205000u
/* Bytes of the packet window: no frame that a handler is given or sends is longer. */
#define SPIN_PACKET_WINDOW 4096u
/* Bytes of a handler's stack. */
#define SPIN_STACK_WINDOW 4096u

/* Offset of task_t in the driver page. */
#define SPIN_REG_TASK 0x08u
/* Reading ends the handler at once; returning from it does the same. */
#define SPIN_REG_DOORBELL 0x50u
/* Writing ends the handler and reports the value as an error. */
#define SPIN_REG_ERROR 0x54u
/* Reading issues the command in the command words and gives its handle. */
#define SPIN_REG_COMMAND_ISSUE 0x80u
/* Writing a handle waits until that command is complete. */
#define SPIN_REG_COMMAND_WAIT 0x84u
/* Write a handle, then read 1 when that command is complete. */
#define SPIN_REG_COMMAND_TEST 0x88u
/* Type in bits 2:1, event request in bit 0. */
#define SPIN_REG_COMMAND_INFO 0x8cu
/* First of the command words. */
#define SPIN_REG_COMMAND_WORDS 0x90u
/* Write a handle, then read a spin_status. */
#define SPIN_REG_COMMAND_STATUS 0xbcu

/* Command words of an HPU. */
#define SPIN_COMMAND_WORD_COUNT 11u
/* Commands an HPU may have in flight; a further one waits. */
#define SPIN_COMMANDS_IN_FLIGHT 4u
/* Most clusters a machine has: the length of the scratchpad arrays of task_t. */
#define SPIN_MAX_CLUSTERS 4u

/* The cluster's DMA engine, which copies within NIC memory: offsets from its base. */
#define SPIN_CLUSTER_DMA_BASE 0x1b204400u
#define SPIN_CLUSTER_DMA_SOURCE 0x00u
#define SPIN_CLUSTER_DMA_SOURCE_HIGH 0x04u
#define SPIN_CLUSTER_DMA_DESTINATION 0x08u
#define SPIN_CLUSTER_DMA_DESTINATION_HIGH 0x0cu
#define SPIN_CLUSTER_DMA_BYTES 0x10u
/* Reading launches the copy and gives its id. */
#define SPIN_CLUSTER_DMA_LAUNCH 0x18u
/* Reads the id of the copy completed last: those up to it are complete. */
#define SPIN_CLUSTER_DMA_DONE 0x20u
#define SPIN_CLUSTER_DMA_CONFIG 0x28u
/* Writing 1 ends the handler. */
#define SPIN_END_OF_COMPUTATION 0x1b200000u

/* Values of SPIN_REG_COMMAND_INFO. */
#define SPIN_INFO_DMA 0u
#define SPIN_INFO_EVENT 1u
#define SPIN_INFO_SEND 2u
#define SPIN_INFO_HOST_DIRECT 4u

/* Word 4 of a DMA command. */
#define SPIN_DMA_FROM_HOST 0u
#define SPIN_DMA_TO_HOST 1u

/* Most bytes of a HostDirect command. */
#define SPIN_HOST_DIRECT_MAX 32u

#endif
