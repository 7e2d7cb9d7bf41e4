/* Numbers in memory at any alignment, in network order or in the HPU's order. */
#ifndef SPIN_BYTES_H
#define SPIN_BYTES_H

#include <stdint.h>

/* Begins the definition of a function that is inlined into every caller, even if it has several. The compiler then
 * specialises it for each caller. */
#define SPIN_INLINE static inline __attribute__((always_inline))
/* Begins the definition of a function for rare cases, which is never inlined. It costs the common cases no registers, and as
 * a handler's last call no stack; to enter it takes some nanoseconds. */
#define SPIN_APART static __attribute__((noinline, section(".text.apart")))

#define SPIN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SPIN_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Loads and stores in the HPU's byte order, little-endian. The builtin is one load or store if the compiler knows that
 * misaligned accesses are cheap (-mno-strict-align, which spin-cc sets), bytewise otherwise. */
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

/* Conversion between network order and the HPU's. Macros, so that a constant argument gives a constant. */
#define spin_htons(x) ((uint16_t)((uint16_t)(x) << 8 | (uint16_t)(x) >> 8))
#define spin_htonl(x) __builtin_bswap32(x)
#define spin_ntohs(x) spin_htons(x)
#define spin_ntohl(x) spin_htonl(x)

/* Loads and stores in network order. Half-words are read bytewise: without a byte-swap instruction that is the shorter code,
 * and with one (Zbb) compilers recognise it. */
static inline uint16_t spin_read_be16(const void *at) {
    const uint8_t *bytes = (const uint8_t *)at;
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}
static inline uint32_t spin_read_be32(const void *at) { return spin_ntohl(spin_load32(at)); }
static inline void spin_write_be16(void *at, uint16_t value) { spin_store16(at, spin_htons(value)); }
static inline void spin_write_be32(void *at, uint32_t value) { spin_store32(at, spin_htonl(value)); }

#endif
