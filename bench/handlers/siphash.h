/* SipHash-2-4, for the handler and its native twin. */
#ifndef SIPHASH_H
#define SIPHASH_H

#include <spin_packet.h>

/* Handler memory. */
typedef struct siphash_state {
    uint64_t key[2]; /* the application's */
    uint64_t sum;    /* exclusive or of all hashes */
    uint64_t last;
} siphash_state;

static inline uint64_t rotate_left(uint64_t x, uint32_t bits) { return x << bits | x >> (64 - bits); }

static inline uint64_t load64(const uint8_t *at) {
    uint64_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[3];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[2] = rotate_left(v[2], 32);
}

static inline void sip_compress(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static inline uint64_t siphash_of(const uint64_t key[2], const uint8_t *data, uint32_t length) {
    uint64_t v[4] = {
        key[0] ^ 0x736f6d6570736575,
        key[1] ^ 0x646f72616e646f6d,
        key[0] ^ 0x6c7967656e657261,
        key[1] ^ 0x7465646279746573,
    };
    uint64_t tail = (uint64_t)length << 56;
    for (; length >= 8; length -= 8, data += 8) sip_compress(v, load64(data));
    for (uint32_t i = 0; i < length; i++) tail |= (uint64_t)data[i] << 8 * i;
    sip_compress(v, tail);
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
