/* Handlers as PsPIN and FPsPIN have them: include this one first.
 *
 * An image defines init_handlers, which says what its handlers are; or functions named header_handler, payload_handler and
 * completion_handler. handlers/PORTING.md says what is different from those machines. */
#ifndef SPIN_HANDLER_H
#define SPIN_HANDLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

/* Payload of an IPv4 packet with a UDP header, and its bytes: `packet` is what the task's pkt_mem points at. */
#define GET_IP_UDP_PLD(packet, payload, length)                                                              \
    do {                                                                                                     \
        uint8_t *udp_ = spin_udp_at((uint8_t *)(packet));                                                    \
        (payload) = (__typeof__(payload))(udp_ + 8);                                                         \
        (length) = spin_field16(udp_ + 4) - 8u;                                                              \
    } while (0)

#ifdef SPIN_ABI_PSPIN
static inline uint32_t spin_field16(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }
static inline uint8_t *spin_udp_at(uint8_t *packet) { return packet + 4 * MAX(packet[0] >> 4, 5); }
#else
static inline uint32_t spin_field16(const uint8_t *at) { return (uint32_t)at[0] << 8 | (uint32_t)at[1]; }
static inline uint8_t *spin_udp_at(uint8_t *packet) { return packet + 14 + 4 * MAX(packet[14] & 15, 5); }
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
