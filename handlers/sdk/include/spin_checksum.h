/* The internet checksum (RFC 1071), in full and incremental (RFC 1624).
 *
 * Sums are taken over half-words in memory order, without swapping. The one's complement sum does not depend on the byte
 * order if the result is stored in the same order (RFC 1071, 2(B)). A running sum has 32 bits with its carries added in;
 * spin_checksum_fold reduces it to 16.
 */
#ifndef SPIN_CHECKSUM_H
#define SPIN_CHECKSUM_H

#include "spin_bytes.h"

/* One's complement addition. */
static inline uint32_t spin_checksum_add(uint32_t sum, uint32_t word) {
    sum += word;
    return sum + (sum < word);
}

/* Adds `length` bytes. The first is at an even distance from the start of the summed data. */
static inline uint32_t spin_checksum_bytes(uint32_t sum, const void *data, uint32_t length) {
    const uint8_t *at = (const uint8_t *)data;
    for (; length >= 16; length -= 16, at += 16) {
        sum = spin_checksum_add(sum, spin_load32(at));
        sum = spin_checksum_add(sum, spin_load32(at + 4));
        sum = spin_checksum_add(sum, spin_load32(at + 8));
        sum = spin_checksum_add(sum, spin_load32(at + 12));
    }
    for (; length >= 4; length -= 4, at += 4) sum = spin_checksum_add(sum, spin_load32(at));
    if (length >= 2) {
        sum = spin_checksum_add(sum, spin_load16(at));
        length -= 2;
        at += 2;
    }
    return length == 0 ? sum : spin_checksum_add(sum, *at); /* an odd last byte is padded with zero */
}

/* The sum in 16 bits. It is 0 only if everything added was 0: end-around carries never produce 0. */
static inline uint16_t spin_checksum_fold(uint32_t sum) {
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)(sum + (sum >> 16));
}

/* The checksum field for a sum, to be stored as is. */
static inline uint16_t spin_checksum_finish(uint32_t sum) { return (uint16_t)~spin_checksum_fold(sum); }

/* Whether a sum that includes the checksum field is right. */
static inline int spin_checksum_holds(uint32_t sum) { return spin_checksum_fold(sum) == 0xffff; }

/* The checksum field after half-word `before` became `after`, all in memory order: RFC 1624, equation 3.
 *
 * One corner case is left to the caller: if everything else summed is zero, the result is 0x0000 where 0xffff is right. It cannot
 * occur in IPv4 headers (the version is not zero), nor in TCP and UDP (the pseudo header is not zero). */
static inline uint16_t spin_checksum_update(uint16_t checksum, uint16_t before, uint16_t after) {
    return spin_checksum_finish((uint32_t)(uint16_t)~checksum + (uint16_t)~before + after);
}

#endif
