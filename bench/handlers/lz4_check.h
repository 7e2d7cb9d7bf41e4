/* Check of an LZ4 block, for the handler and its native twin. */
#ifndef LZ4_CHECK_H
#define LZ4_CHECK_H

#include <spin_packet.h>

#define LZ4_MIN_MATCH 4u
#define LZ4_INVALID UINT32_MAX

/* Counters. */
typedef struct lz4_stats {
    uint32_t valid;
    uint32_t invalid;
    uint32_t bytes; /* decompressed size of all valid blocks */
} lz4_stats;

/* Completes a length of the token. 15 means that bytes follow which are added, the last of which is not 255. Returns the place
 * behind them, or NULL if the block ends before. */
static inline const uint8_t *lz4_read_length(const uint8_t *at, const uint8_t *end, uint32_t *length) {
    if (*length < 15) return at;
    uint8_t byte;
    do {
        if (at == end) return NULL;
        byte = *at++;
        *length += byte;
    } while (byte == 255);
    return at;
}

/* Returns the decompressed size of a block, or LZ4_INVALID. Each match must begin in what was produced before it. The block ends
 * behind the literals of its last sequence, which has no match. */
static inline uint32_t lz4_size_of(const uint8_t *at, uint32_t length) {
    const uint8_t *end = at + length;
    uint32_t produced = 0;
    while (at < end) {
        uint8_t token = *at++;
        uint32_t literals = token >> 4, match = token & 15;
        at = lz4_read_length(at, end, &literals);
        if (!at || literals > (uint32_t)(end - at)) return LZ4_INVALID;
        at += literals;
        produced += literals;
        if (at == end) return produced;
        if (end - at < 2) return LZ4_INVALID;
        uint32_t offset = spin_load16(at);
        at += 2;
        if (offset == 0 || offset > produced) return LZ4_INVALID;
        at = lz4_read_length(at, end, &match);
        if (!at) return LZ4_INVALID;
        produced += match + LZ4_MIN_MATCH;
    }
    return LZ4_INVALID;
}

#endif
