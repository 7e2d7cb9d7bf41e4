/* Hash functions and checksums: for tables, and message digests behind one interface. */
#ifndef LARGE_DIGEST_H
#define LARGE_DIGEST_H

#include "heap.h"

static inline uint32_t rotl(uint32_t x, uint32_t n) { return x << (n & 31) | x >> (-n & 31); }
static inline uint64_t rotl64(uint64_t x, uint32_t n) { return x << (n & 63) | x >> (-n & 63); }

static inline uint32_t load32(const uint8_t *at) {
    uint32_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}
static inline uint64_t load64(const uint8_t *at) {
    uint64_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}
static inline void store32(uint8_t *at, uint32_t value) { __builtin_memcpy(at, &value, sizeof value); }

/* The finaliser of MurmurHash3. */
static inline uint32_t mix32(uint32_t x) {
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

uint32_t fnv1a(const void *bytes, uint32_t length);
uint32_t murmur3(const void *bytes, uint32_t length, uint32_t seed);
uint32_t xxh32(const void *bytes, uint32_t length, uint32_t seed);
uint64_t siphash(const void *bytes, uint32_t length, uint64_t key0, uint64_t key1);
uint32_t adler32(const void *bytes, uint32_t length);
uint32_t fletcher32(const void *bytes, uint32_t length);
void crc32_tables(uint32_t tables[4][256], uint32_t polynomial);
uint32_t crc32_update(uint32_t tables[4][256], uint32_t crc, const void *bytes, uint32_t length);

/* State of a message digest. */
typedef struct digest_state {
    uint32_t words[8];
    uint32_t low, high; /* number of bytes so far */
    uint8_t pending[64];
} digest_state;

typedef struct digest {
    const char *name;
    uint32_t bytes; /* of the result */
    void (*init)(digest_state *state);
    void (*blocks)(digest_state *state, const uint8_t *bytes, uint32_t count);
    bool big_endian;
} digest;

extern const digest digest_md5, digest_sha1, digest_sha256;

void digest_update(const digest *kind, digest_state *state, const void *bytes, uint32_t length);
void digest_final(const digest *kind, digest_state *state, uint8_t *result);
/* HMAC (RFC 2104). `state` is room for the inner and the outer state. */
void digest_hmac(const digest *kind, digest_state state[2], const uint8_t *key, uint32_t key_length, const void *bytes,
                 uint32_t length, uint8_t *result);

/* ChaCha20 (RFC 8439): exclusive or of the key stream with the bytes. */
void chacha20(const uint32_t key[8], uint32_t counter, const uint32_t nonce[3], uint8_t *bytes, uint32_t length);

#endif
