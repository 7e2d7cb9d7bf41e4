/* Bytes in memory as numbers: at any alignment, in network order or as they lie. */
#ifndef SPIN_BYTES_H
#define SPIN_BYTES_H

#include <stdint.h>

/* A function that is part of all that call it, also where several do: what they know is known in it. */
#define SPIN_INLINE static inline __attribute__((always_inline))
/* One for what is seldom done. A handler that calls it last leaves it no stack and no registers. */
#define SPIN_APART static __attribute__((noinline))

#define SPIN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SPIN_MAX(a, b) ((a) > (b) ? (a) : (b))

/* As they lie (the HPU is little-endian). The builtin is one load or store where the compiler knows that
 * misaligned accesses are cheap (-mno-strict-align, which spin-cc gives), bytewise else. */
static inline uint16_t spin_load16(const void *at) {
    uint16_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t spin_load32(const void *at) {
    uint32_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static inline void spin_store16(void *at, uint16_t value) { __builtin_memcpy(at, &value, sizeof value); }
static inline void spin_store32(void *at, uint32_t value) { __builtin_memcpy(at, &value, sizeof value); }

/* Network order to the HPU's and back. As macros they are constants of constants. */
#define spin_htons(x) ((uint16_t)((uint16_t)(x) << 8 | (uint16_t)(x) >> 8))
#define spin_htonl(x) __builtin_bswap32(x)
#define spin_ntohs(x) spin_htons(x)
#define spin_ntohl(x) spin_htonl(x)

/* Network order, from and to memory. Half-words bytewise: the shorter code without a byte-swap instruction; where there
 * is one (Zbb), compilers find it. */
static inline uint16_t spin_read_be16(const void *at) {
    const uint8_t *bytes = (const uint8_t *)at;
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}
static inline uint32_t spin_read_be32(const void *at) { return spin_ntohl(spin_load32(at)); }
static inline void spin_write_be16(void *at, uint16_t value) { spin_store16(at, spin_htons(value)); }
static inline void spin_write_be32(void *at, uint32_t value) { spin_store32(at, spin_htonl(value)); }

#endif
