/* Addresses and offsets of the HPU in the handlers' address space.
 *
 * The numbers are those of abi/src/regs.rs and abi/src/map.rs; a test of the package spin-handlers compares every one.
 * Device registers take aligned 32-bit accesses only; any other access ends the handler with a device fault. The printing
 * device is the exception: it takes one byte per store.
 */
#ifndef SPIN_REGS_H
#define SPIN_REGS_H

/* Store a character here to print it in spind's log. */
#define SPIN_STDOUT_BASE 0x1a104000u
/* The HPU driver page. It begins with task_t in plain memory; the registers below are the device. */
#define SPIN_DRIVER_BASE 0x1b205000u
/* Bytes of the packet window: maximum length of a received or sent frame. */
#define SPIN_PACKET_WINDOW 4096u
/* Bytes of a handler's stack. */
#define SPIN_STACK_WINDOW 4096u

/* Offset of task_t in the driver page. */
#define SPIN_REG_TASK 0x08u
/* Read: ends the handler at once, as a return does. */
#define SPIN_REG_DOORBELL 0x50u
/* Write: ends the handler and reports the value as an error. */
#define SPIN_REG_ERROR 0x54u
/* Read: issues the command in the command words and returns its handle. */
#define SPIN_REG_COMMAND_ISSUE 0x80u
/* Write a handle: waits until that command is complete. */
#define SPIN_REG_COMMAND_WAIT 0x84u
/* Write a handle, then read: 1 if that command is complete. */
#define SPIN_REG_COMMAND_TEST 0x88u
/* Command type in bits 2:1, event request in bit 0. */
#define SPIN_REG_COMMAND_INFO 0x8cu
/* First of the command words. */
#define SPIN_REG_COMMAND_WORDS 0x90u
/* Write a handle, then read: the command's spin_status. */
#define SPIN_REG_COMMAND_STATUS 0xbcu

/* Number of an HPU's command words. */
#define SPIN_COMMAND_WORD_COUNT 11u
/* Number of commands that an HPU may have in flight; a further one waits. */
#define SPIN_COMMANDS_IN_FLIGHT 4u
/* Maximum number of clusters: the length of the scratchpad arrays of task_t. */
#define SPIN_MAX_CLUSTERS 4u

/* The cluster's DMA engine, which copies within NIC memory: base address, and offsets from it. */
#define SPIN_CLUSTER_DMA_BASE 0x1b204400u
#define SPIN_CLUSTER_DMA_SOURCE 0x00u
#define SPIN_CLUSTER_DMA_SOURCE_HIGH 0x04u
#define SPIN_CLUSTER_DMA_DESTINATION 0x08u
#define SPIN_CLUSTER_DMA_DESTINATION_HIGH 0x0cu
#define SPIN_CLUSTER_DMA_BYTES 0x10u
/* Read: starts the copy and returns its id. */
#define SPIN_CLUSTER_DMA_LAUNCH 0x18u
/* Read: the id of the last completed copy; all copies up to it are complete. */
#define SPIN_CLUSTER_DMA_DONE 0x20u
#define SPIN_CLUSTER_DMA_CONFIG 0x28u
/* Write 1: ends the handler. */
#define SPIN_END_OF_COMPUTATION 0x1b200000u

/* Values of SPIN_REG_COMMAND_INFO. */
#define SPIN_INFO_DMA 0u
#define SPIN_INFO_EVENT 1u
#define SPIN_INFO_SEND 2u
#define SPIN_INFO_HOST_DIRECT 4u

/* Word 4 of a DMA command. */
#define SPIN_DMA_FROM_HOST 0u
#define SPIN_DMA_TO_HOST 1u

/* Maximum number of bytes of a HostDirect command. */
#define SPIN_HOST_DIRECT_MAX 32u

#endif
