/* The SDK of spind's handlers: include this file.
 *
 * Handlers see a packet as on the wire: Ethernet header first, fields in network order.
 *
 *   spin_task.h      arguments of a handler
 *   spin_verdict.h   return values of a handler
 *   spin_packet.h    checked views of packets
 *   spin_reply.h     functions that turn a packet into its answer
 *   spin_command.h   sending, DMA, writes to host memory
 *   spin_atomic.h    atomic operations, locks
 *   spin_checksum.h  internet checksum
 *   spin_bytes.h     numbers in memory, byte order
 *   spin_io.h        printing, cycle counter
 *   spin_device.h    registers of the device page, waiting for commands
 *   spin_regs.h      addresses of the device page
 */
#ifndef SPIN_H
#define SPIN_H

#ifdef SPIN_CONF_H
#error "spin.h and handler.h describe the same things differently: include one of them"
#endif

#include "spin_atomic.h"
#include "spin_bytes.h"
#include "spin_checksum.h"
#include "spin_command.h"
#include "spin_device.h"
#include "spin_io.h"
#include "spin_packet.h"
#include "spin_regs.h"
#include "spin_reply.h"
#include "spin_task.h"
#include "spin_verdict.h"

/* Functions of the SDK's library, linked in when used. */
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *__restrict to, const void *__restrict from, size_t length);
void *memmove(void *to, const void *from, size_t length);
void *memset(void *to, int byte, size_t length);
int memcmp(const void *left, const void *right, size_t length);
#ifdef __cplusplus
}
#endif

#endif
