#include "digest.h"

uint32_t fnv1a(const void *bytes, uint32_t length) {
    const uint8_t *at = bytes;
    uint32_t hash = 0x811c9dc5u;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ at[i]) * 0x01000193u;
    return hash;
}

uint32_t murmur3(const void *bytes, uint32_t length, uint32_t seed) {
    const uint8_t *at = bytes;
    uint32_t hash = seed, rest = 0;
    for (uint32_t i = 0; i + 4 <= length; i += 4) {
        hash ^= rotl(load32(at + i) * 0xcc9e2d51u, 15) * 0x1b873593u;
        hash = rotl(hash, 13) * 5 + 0xe6546b64u;
    }
    const uint8_t *tail = at + (length & ~3u);
    switch (length & 3) {
        case 3: rest ^= (uint32_t)tail[2] << 16; __attribute__((fallthrough));
        case 2: rest ^= (uint32_t)tail[1] << 8; __attribute__((fallthrough));
        case 1: hash ^= rotl((rest ^ tail[0]) * 0xcc9e2d51u, 15) * 0x1b873593u;
    }
    return mix32(hash ^ length);
}

#define P1 0x9e3779b1u
#define P2 0x85ebca77u
#define P3 0xc2b2ae3du
#define P4 0x27d4eb2fu
#define P5 0x165667b1u

static uint32_t xxh_round(uint32_t lane, uint32_t input) { return rotl(lane + input * P2, 13) * P1; }

uint32_t xxh32(const void *bytes, uint32_t length, uint32_t seed) {
    const uint8_t *at = bytes, *end = at + length;
    uint32_t hash = seed + P5;
    if (length >= 16) {
        uint32_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; end - at >= 16; at += 16) {
            a = xxh_round(a, load32(at));
            b = xxh_round(b, load32(at + 4));
            c = xxh_round(c, load32(at + 8));
            d = xxh_round(d, load32(at + 12));
        }
        hash = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
    }
    hash += length;
    for (; end - at >= 4; at += 4) hash = rotl(hash + load32(at) * P3, 17) * P4;
    for (; at < end; at++) hash = rotl(hash + *at * P5, 11) * P1;
    hash = (hash ^ hash >> 15) * P2;
    hash = (hash ^ hash >> 13) * P3;
    return hash ^ hash >> 16;
}

#define SIPROUND                                                       \
    do {                                                               \
        a += b, b = rotl64(b, 13) ^ a, a = rotl64(a, 32);              \
        c += d, d = rotl64(d, 16) ^ c;                                 \
        a += d, d = rotl64(d, 21) ^ a;                                 \
        c += b, b = rotl64(b, 17) ^ c, c = rotl64(c, 32);              \
    } while (0)

uint64_t siphash(const void *bytes, uint32_t length, uint64_t key0, uint64_t key1) {
    const uint8_t *at = bytes;
    uint64_t a = key0 ^ 0x736f6d6570736575u, b = key1 ^ 0x646f72616e646f6du;
    uint64_t c = key0 ^ 0x6c7967656e657261u, d = key1 ^ 0x7465646279746573u, last = (uint64_t)length << 56;
    for (uint32_t i = 0; i + 8 <= length; i += 8) {
        uint64_t word = load64(at + i);
        d ^= word;
        SIPROUND;
        SIPROUND;
        a ^= word;
    }
    for (uint32_t i = 0; i < (length & 7); i++) last |= (uint64_t)at[(length & ~7u) + i] << 8 * i;
    d ^= last;
    SIPROUND;
    SIPROUND;
    a ^= last;
    c ^= 0xff;
    for (int i = 0; i < 4; i++) SIPROUND;
    return a ^ b ^ c ^ d;
}

uint32_t adler32(const void *bytes, uint32_t length) {
    const uint8_t *at = bytes;
    uint32_t low = 1, high = 0;
    while (length > 0) {
        /* As many as the sums can take without overflow. */
        uint32_t part = length < 5552 ? length : 5552;
        length -= part;
        for (; part > 0; part--) low += *at++, high += low;
        low %= 65521;
        high %= 65521;
    }
    return high << 16 | low;
}

uint32_t fletcher32(const void *bytes, uint32_t length) {
    const uint8_t *at = bytes;
    uint32_t low = 0xffff, high = 0xffff;
    for (uint32_t i = 0; i + 2 <= length; i += 2) {
        low += at[i] | (uint32_t)at[i + 1] << 8;
        high += low;
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    return high << 16 | (low & 0xffff);
}

void crc32_tables(uint32_t tables[4][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (-(crc & 1) & polynomial);
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int i = 1; i < 4; i++) tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 255];
}

uint32_t crc32_update(uint32_t tables[4][256], uint32_t crc, const void *bytes, uint32_t length) {
    const uint8_t *at = bytes;
    crc = ~crc;
    for (; length >= 4; length -= 4, at += 4) {
        crc ^= load32(at);
        crc = tables[3][crc & 255] ^ tables[2][crc >> 8 & 255] ^ tables[1][crc >> 16 & 255] ^ tables[0][crc >> 24];
    }
    for (; length > 0; length--) crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 255];
    return ~crc;
}

static void md5_init(digest_state *state) {
    static const uint32_t start[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    memcpy(state->words, start, sizeof start);
}

/* RFC 1321, 3.4. */
#define MD5_F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define MD5_G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define MD5_H(x, y, z) ((x) ^ (y) ^ (z))
#define MD5_I(x, y, z) ((y) ^ ((x) | ~(z)))
#define MD5_STEP(f, a, b, c, d, k, s, t) a = b + rotl(a + f(b, c, d) + load32(at + 4 * (k)) + t, s)
#define MD5_FOUR(f, k0, k1, k2, k3, s0, s1, s2, s3, t0, t1, t2, t3) \
    MD5_STEP(f, a, b, c, d, k0, s0, t0);                            \
    MD5_STEP(f, d, a, b, c, k1, s1, t1);                            \
    MD5_STEP(f, c, d, a, b, k2, s2, t2);                            \
    MD5_STEP(f, b, c, d, a, k3, s3, t3)

static void md5_blocks(digest_state *state, const uint8_t *at, uint32_t count) {
    uint32_t *h = state->words;
    for (; count > 0; count--, at += 64) {
        uint32_t a = h[0], b = h[1], c = h[2], d = h[3];
        MD5_FOUR(MD5_F, 0, 1, 2, 3, 7, 12, 17, 22, 0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee);
        MD5_FOUR(MD5_F, 4, 5, 6, 7, 7, 12, 17, 22, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501);
        MD5_FOUR(MD5_F, 8, 9, 10, 11, 7, 12, 17, 22, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be);
        MD5_FOUR(MD5_F, 12, 13, 14, 15, 7, 12, 17, 22, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821);
        MD5_FOUR(MD5_G, 1, 6, 11, 0, 5, 9, 14, 20, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa);
        MD5_FOUR(MD5_G, 5, 10, 15, 4, 5, 9, 14, 20, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8);
        MD5_FOUR(MD5_G, 9, 14, 3, 8, 5, 9, 14, 20, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed);
        MD5_FOUR(MD5_G, 13, 2, 7, 12, 5, 9, 14, 20, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a);
        MD5_FOUR(MD5_H, 5, 8, 11, 14, 4, 11, 16, 23, 0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c);
        MD5_FOUR(MD5_H, 1, 4, 7, 10, 4, 11, 16, 23, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70);
        MD5_FOUR(MD5_H, 13, 0, 3, 6, 4, 11, 16, 23, 0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05);
        MD5_FOUR(MD5_H, 9, 12, 15, 2, 4, 11, 16, 23, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665);
        MD5_FOUR(MD5_I, 0, 7, 14, 5, 6, 10, 15, 21, 0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039);
        MD5_FOUR(MD5_I, 12, 3, 10, 1, 6, 10, 15, 21, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1);
        MD5_FOUR(MD5_I, 8, 15, 6, 13, 6, 10, 15, 21, 0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1);
        MD5_FOUR(MD5_I, 4, 11, 2, 9, 6, 10, 15, 21, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391);
        h[0] += a, h[1] += b, h[2] += c, h[3] += d;
    }
}

static void sha1_init(digest_state *state) {
    static const uint32_t start[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    memcpy(state->words, start, sizeof start);
}

#define SHA1_WORD(i) \
    (w[(i) & 15] = rotl(w[((i) + 13) & 15] ^ w[((i) + 8) & 15] ^ w[((i) + 2) & 15] ^ w[(i) & 15], 1))
#define SHA1_ROUND(a, b, c, d, e, f, k, word) e += rotl(a, 5) + (f) + k + (word), b = rotl(b, 30)
#define SHA1_FIVE(i, F, k, word)                                \
    SHA1_ROUND(a, b, c, d, e, F(b, c, d), k, word((i) + 0));    \
    SHA1_ROUND(e, a, b, c, d, F(a, b, c), k, word((i) + 1));    \
    SHA1_ROUND(d, e, a, b, c, F(e, a, b), k, word((i) + 2));    \
    SHA1_ROUND(c, d, e, a, b, F(d, e, a), k, word((i) + 3));    \
    SHA1_ROUND(b, c, d, e, a, F(c, d, e), k, word((i) + 4))
#define SHA1_CHOOSE(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define SHA1_PARITY(x, y, z) ((x) ^ (y) ^ (z))
#define SHA1_MAJORITY(x, y, z) (((x) & (y)) | ((z) & ((x) | (y))))
#define SHA1_FIRST(i) ((i) < 16 ? w[(i) & 15] : SHA1_WORD(i))

static void sha1_blocks(digest_state *state, const uint8_t *at, uint32_t count) {
    uint32_t *h = state->words, w[16];
    for (; count > 0; count--, at += 64) {
        for (int i = 0; i < 16; i++) w[i] = __builtin_bswap32(load32(at + 4 * i));
        uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
        for (int i = 0; i < 20; i += 5) { SHA1_FIVE(i, SHA1_CHOOSE, 0x5a827999, SHA1_FIRST); }
        for (int i = 20; i < 40; i += 5) { SHA1_FIVE(i, SHA1_PARITY, 0x6ed9eba1, SHA1_WORD); }
        for (int i = 40; i < 60; i += 5) { SHA1_FIVE(i, SHA1_MAJORITY, 0x8f1bbcdc, SHA1_WORD); }
        for (int i = 60; i < 80; i += 5) { SHA1_FIVE(i, SHA1_PARITY, 0xca62c1d6, SHA1_WORD); }
        h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
    }
}

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha256_init(digest_state *state) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(state->words, start, sizeof start);
}

#define SHA256_ROUND(a, b, c, d, e, f, g, h, i, word)                                                                    \
    do {                                                                                                                 \
        uint32_t t = h + (rotl(e, 26) ^ rotl(e, 21) ^ rotl(e, 7)) + (g ^ (e & (f ^ g))) + sha256_k[i] + (word);          \
        d += t;                                                                                                          \
        h = t + (rotl(a, 30) ^ rotl(a, 19) ^ rotl(a, 10)) + ((a & b) | (c & (a | b)));                                   \
    } while (0)
#define SHA256_WORD(i)                                                                                             \
    (w[(i) & 15] += (rotl(w[((i) + 1) & 15], 25) ^ rotl(w[((i) + 1) & 15], 14) ^ w[((i) + 1) & 15] >> 3) +         \
                    w[((i) + 9) & 15] +                                                                            \
                    (rotl(w[((i) + 14) & 15], 15) ^ rotl(w[((i) + 14) & 15], 13) ^ w[((i) + 14) & 15] >> 10))
#define SHA256_FIRST(i) w[i]
#define SHA256_EIGHT(i, word)                                     \
    SHA256_ROUND(a, b, c, d, e, f, g, h, (i) + 0, word((i) + 0)); \
    SHA256_ROUND(h, a, b, c, d, e, f, g, (i) + 1, word((i) + 1)); \
    SHA256_ROUND(g, h, a, b, c, d, e, f, (i) + 2, word((i) + 2)); \
    SHA256_ROUND(f, g, h, a, b, c, d, e, (i) + 3, word((i) + 3)); \
    SHA256_ROUND(e, f, g, h, a, b, c, d, (i) + 4, word((i) + 4)); \
    SHA256_ROUND(d, e, f, g, h, a, b, c, (i) + 5, word((i) + 5)); \
    SHA256_ROUND(c, d, e, f, g, h, a, b, (i) + 6, word((i) + 6)); \
    SHA256_ROUND(b, c, d, e, f, g, h, a, (i) + 7, word((i) + 7))

static void sha256_blocks(digest_state *state, const uint8_t *at, uint32_t count) {
    uint32_t *s = state->words, w[16];
    for (; count > 0; count--, at += 64) {
        for (int i = 0; i < 16; i++) w[i] = __builtin_bswap32(load32(at + 4 * i));
        uint32_t a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
        for (int i = 0; i < 16; i += 8) { SHA256_EIGHT(i, SHA256_FIRST); }
        for (int i = 16; i < 64; i += 16) {
            SHA256_EIGHT(i, SHA256_WORD);
            SHA256_EIGHT(i + 8, SHA256_WORD);
        }
        s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
    }
}

const digest digest_md5 = {"md5", 16, md5_init, md5_blocks, false};
const digest digest_sha1 = {"sha1", 20, sha1_init, sha1_blocks, true};
const digest digest_sha256 = {"sha256", 32, sha256_init, sha256_blocks, true};

void digest_update(const digest *kind, digest_state *state, const void *bytes, uint32_t length) {
    const uint8_t *at = bytes;
    uint32_t pending = state->low & 63;
    state->low += length;
    if (state->low < length) state->high++;
    if (pending != 0) {
        uint32_t part = 64 - pending < length ? 64 - pending : length;
        memcpy(state->pending + pending, at, part);
        at += part;
        length -= part;
        if (pending + part < 64) return;
        kind->blocks(state, state->pending, 1);
    }
    if (length >= 64) kind->blocks(state, at, length / 64);
    memcpy(state->pending, at + (length & ~63u), length & 63);
}

void digest_final(const digest *kind, digest_state *state, uint8_t *result) {
    uint32_t pending = state->low & 63, low = state->low << 3, high = state->high << 3 | state->low >> 29;
    state->pending[pending++] = 0x80;
    if (pending > 56) {
        memset(state->pending + pending, 0, 64 - pending);
        kind->blocks(state, state->pending, 1);
        pending = 0;
    }
    memset(state->pending + pending, 0, 56 - pending);
    store32(state->pending + 56, kind->big_endian ? __builtin_bswap32(high) : low);
    store32(state->pending + 60, kind->big_endian ? __builtin_bswap32(low) : high);
    kind->blocks(state, state->pending, 1);
    for (uint32_t i = 0; i < kind->bytes; i += 4) {
        uint32_t word = state->words[i / 4];
        store32(result + i, kind->big_endian ? __builtin_bswap32(word) : word);
    }
}

static void start(const digest *kind, digest_state *state) {
    memset(state, 0, sizeof *state);
    kind->init(state);
}

void digest_hmac(const digest *kind, digest_state state[2], const uint8_t *key, uint32_t key_length, const void *bytes,
                 uint32_t length, uint8_t *result) {
    uint8_t block[64] = {0};
    start(kind, &state[0]);
    if (key_length > 64) {
        digest_update(kind, &state[0], key, key_length);
        digest_final(kind, &state[0], block);
        start(kind, &state[0]);
    } else {
        memcpy(block, key, key_length);
    }
    for (int i = 0; i < 64; i++) block[i] ^= 0x36;
    digest_update(kind, &state[0], block, 64);
    digest_update(kind, &state[0], bytes, length);
    digest_final(kind, &state[0], result);
    for (int i = 0; i < 64; i++) block[i] ^= 0x36 ^ 0x5c;
    start(kind, &state[1]);
    digest_update(kind, &state[1], block, 64);
    digest_update(kind, &state[1], result, kind->bytes);
    digest_final(kind, &state[1], result);
}

#define QUARTER(a, b, c, d)              \
    x[a] += x[b], x[d] = rotl(x[d] ^ x[a], 16), x[c] += x[d], x[b] = rotl(x[b] ^ x[c], 12), \
    x[a] += x[b], x[d] = rotl(x[d] ^ x[a], 8), x[c] += x[d], x[b] = rotl(x[b] ^ x[c], 7)

void chacha20(const uint32_t key[8], uint32_t counter, const uint32_t nonce[3], uint8_t *bytes, uint32_t length) {
    uint32_t input[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    memcpy(input + 4, key, 32);
    memcpy(input + 13, nonce, 12);
    while (length > 0) {
        uint32_t x[16], part = length < 64 ? length : 64;
        input[12] = counter++;
        memcpy(x, input, sizeof x);
        for (int i = 0; i < 10; i++) {
            QUARTER(0, 4, 8, 12);
            QUARTER(1, 5, 9, 13);
            QUARTER(2, 6, 10, 14);
            QUARTER(3, 7, 11, 15);
            QUARTER(0, 5, 10, 15);
            QUARTER(1, 6, 11, 12);
            QUARTER(2, 7, 8, 13);
            QUARTER(3, 4, 9, 14);
        }
        for (int i = 0; i < 16; i++) x[i] += input[i];
        const uint8_t *stream = (const uint8_t *)x;
        for (uint32_t i = 0; i < part; i++) bytes[i] ^= stream[i];
        bytes += part;
        length -= part;
    }
}
