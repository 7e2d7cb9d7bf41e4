/* Handlers as PsPIN and FPsPIN have them: include this one first.
 *
 * An image defines init_handlers, which says what its handlers are; or functions named header_handler, payload_handler and
 * completion_handler. handlers/PORTING.md says what is different from those machines. */
#ifndef SPIN_HANDLER_H
#define SPIN_HANDLER_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwsched.h"
#include "pspin.h"
#include "pspin_rt.h"
#include "spin_conf.h"
#include "spin_dma.h"
#include "util.h"

/* Before a handler's definition: a function that is kept whoever calls it, by the linker too where the compiler can say so. Drivers
 * of a simulation find handlers by name. */
#ifdef __has_attribute
#if __has_attribute(retain)
#define __handler__ __attribute__((used, retain, noinline))
#endif
#endif
#ifndef __handler__
#define __handler__ __attribute__((used, noinline))
#endif

/* Payload of an IPv4 packet with a UDP header, and its bytes: a block, for a `packet` that begins with its IP header. Both are of the IP
 * header: its length, and the packet's total length without 28. */
#define GET_IP_UDP_PLD(packet, payload, length)                                       \
    {                                                                                 \
        uint8_t *ip_ = (uint8_t *)(packet);                                           \
        (payload) = (__typeof__(payload))(ip_ + SPIN_IHL(ip_) * 4 + 8);               \
        (length) = (__typeof__(length))(SPIN_IP_LENGTH(ip_) - 20 - 8);                \
    }

#ifdef SPIN_ABI_PSPIN
#define SPIN_IHL(ip) ((ip)[0] >> 4)
#define SPIN_IP_LENGTH(ip) ((uint32_t)(ip)[2] | (uint32_t)(ip)[3] << 8)
#else
#define SPIN_IHL(ip) ((ip)[0] & 15)
#define SPIN_IP_LENGTH(ip) ((uint32_t)(ip)[2] << 8 | (uint32_t)(ip)[3])
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Stores where the arguments point: the handlers, NULL for none, and where handler memory begins. */
void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem);

void header_handler(handler_args_t *args);
void payload_handler(handler_args_t *args);
void completion_handler(handler_args_t *args);

#ifdef __cplusplus
}
#endif

#endif
