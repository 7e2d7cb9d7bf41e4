#include "aes.h"

#include "digest.h"

static uint8_t twice(uint8_t x) { return (uint8_t)(x << 1 ^ (x >> 7) * 0x1b); }

static uint8_t times(uint8_t a, uint8_t b) {
    uint8_t product = 0;
    for (; b != 0; b >>= 1, a = twice(a))
        if (b & 1) product ^= a;
    return product;
}

void aes_init(aes_tables *t) {
    uint8_t p = 1, q = 1;
    /* p goes through all but 0, and q is its inverse. */
    do {
        p ^= twice(p);
        q ^= (uint8_t)(q << 1);
        q ^= (uint8_t)(q << 2);
        q ^= (uint8_t)(q << 4);
        if (q & 0x80) q ^= 9;
        uint8_t x = q ^ (uint8_t)(q << 1 | q >> 7) ^ (uint8_t)(q << 2 | q >> 6) ^ (uint8_t)(q << 3 | q >> 5) ^ (uint8_t)(q << 4 | q >> 4);
        t->box[p] = x ^ 0x63;
    } while (p != 1);
    t->box[0] = 0x63;
    for (uint32_t i = 0; i < 256; i++) t->inverse[t->box[i]] = (uint8_t)i;
    for (uint32_t i = 0; i < 256; i++) {
        uint8_t s = t->box[i], r = t->inverse[i];
        uint32_t forward = twice(s) | (uint32_t)s << 8 | (uint32_t)s << 16 | (uint32_t)(twice(s) ^ s) << 24;
        uint32_t back = times(r, 14) | (uint32_t)times(r, 9) << 8 | (uint32_t)times(r, 13) << 16 | (uint32_t)times(r, 11) << 24;
        for (uint32_t k = 0; k < 4; k++) {
            t->encrypt[k][i] = rotl(forward, 8 * k);
            t->decrypt[k][i] = rotl(back, 8 * k);
        }
    }
}

static uint32_t substitute(const uint8_t *box, uint32_t word) {
    return box[word & 255] | (uint32_t)box[word >> 8 & 255] << 8 | (uint32_t)box[word >> 16 & 255] << 16 | (uint32_t)box[word >> 24] << 24;
}

void aes_expand(const aes_tables *t, aes_key *key, const uint8_t *bytes, uint32_t words) {
    uint8_t constant = 1;
    key->rounds = words + 6;
    uint32_t count = 4 * (key->rounds + 1);
    for (uint32_t i = 0; i < words; i++) key->encrypt[i] = load32(bytes + 4 * i);
    for (uint32_t i = words; i < count; i++) {
        uint32_t word = key->encrypt[i - 1];
        if (i % words == 0) {
            word = substitute(t->box, rotl(word, 24)) ^ constant;
            constant = twice(constant);
        } else if (words > 6 && i % words == 4) {
            word = substitute(t->box, word);
        }
        key->encrypt[i] = key->encrypt[i - words] ^ word;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word = key->encrypt[4 * (key->rounds - i / 4) + i % 4];
        if (i >= 4 && i < count - 4) {
            uint32_t mixed = substitute(t->box, word);
            word = t->decrypt[0][mixed & 255] ^ t->decrypt[1][mixed >> 8 & 255] ^ t->decrypt[2][mixed >> 16 & 255] ^ t->decrypt[3][mixed >> 24];
        }
        key->decrypt[i] = word;
    }
}

/* A column of a round; rows come from columns `a` to `d`. */
#define COLUMN(T, a, b, c, d, k) (T[0][(a) & 255] ^ T[1][(b) >> 8 & 255] ^ T[2][(c) >> 16 & 255] ^ T[3][(d) >> 24] ^ (k))
#define LAST(B, a, b, c, d, k) \
    ((B[(a) & 255] | (uint32_t)B[(b) >> 8 & 255] << 8 | (uint32_t)B[(c) >> 16 & 255] << 16 | (uint32_t)B[(d) >> 24] << 24) ^ (k))

void aes_encrypt(const aes_tables *t, const aes_key *key, const uint8_t from[16], uint8_t to[16]) {
    const uint32_t *k = key->encrypt;
    uint32_t a = load32(from) ^ k[0], b = load32(from + 4) ^ k[1], c = load32(from + 8) ^ k[2], d = load32(from + 12) ^ k[3];
    for (uint32_t round = 1; round < key->rounds; round++) {
        k += 4;
        uint32_t e = COLUMN(t->encrypt, a, b, c, d, k[0]), f = COLUMN(t->encrypt, b, c, d, a, k[1]);
        uint32_t g = COLUMN(t->encrypt, c, d, a, b, k[2]), h = COLUMN(t->encrypt, d, a, b, c, k[3]);
        a = e, b = f, c = g, d = h;
    }
    k += 4;
    store32(to, LAST(t->box, a, b, c, d, k[0]));
    store32(to + 4, LAST(t->box, b, c, d, a, k[1]));
    store32(to + 8, LAST(t->box, c, d, a, b, k[2]));
    store32(to + 12, LAST(t->box, d, a, b, c, k[3]));
}

void aes_decrypt(const aes_tables *t, const aes_key *key, const uint8_t from[16], uint8_t to[16]) {
    const uint32_t *k = key->decrypt;
    uint32_t a = load32(from) ^ k[0], b = load32(from + 4) ^ k[1], c = load32(from + 8) ^ k[2], d = load32(from + 12) ^ k[3];
    for (uint32_t round = 1; round < key->rounds; round++) {
        k += 4;
        uint32_t e = COLUMN(t->decrypt, a, d, c, b, k[0]), f = COLUMN(t->decrypt, b, a, d, c, k[1]);
        uint32_t g = COLUMN(t->decrypt, c, b, a, d, k[2]), h = COLUMN(t->decrypt, d, c, b, a, k[3]);
        a = e, b = f, c = g, d = h;
    }
    k += 4;
    store32(to, LAST(t->inverse, a, d, c, b, k[0]));
    store32(to + 4, LAST(t->inverse, b, a, d, c, k[1]));
    store32(to + 8, LAST(t->inverse, c, b, a, d, k[2]));
    store32(to + 12, LAST(t->inverse, d, c, b, a, k[3]));
}

void aes_counter(const aes_tables *t, const aes_key *key, uint8_t counter[16], uint8_t *bytes, uint32_t length) {
    for (uint32_t at = 0; at < length; at += 16) {
        uint8_t stream[16];
        aes_encrypt(t, key, counter, stream);
        for (uint32_t i = 0; i < 16 && at + i < length; i++) bytes[at + i] ^= stream[i];
        for (int i = 15; i >= 0 && ++counter[i] == 0; i--) {}
    }
}

void aes_chain_encrypt(const aes_tables *t, const aes_key *key, uint8_t vector[16], uint8_t *bytes, uint32_t length) {
    for (; length >= 16; length -= 16, bytes += 16) {
        for (int i = 0; i < 16; i++) vector[i] ^= bytes[i];
        aes_encrypt(t, key, vector, bytes);
        memcpy(vector, bytes, 16);
    }
}

void aes_chain_decrypt(const aes_tables *t, const aes_key *key, uint8_t vector[16], uint8_t *bytes, uint32_t length) {
    for (; length >= 16; length -= 16, bytes += 16) {
        uint8_t next[16];
        memcpy(next, bytes, 16);
        aes_decrypt(t, key, bytes, bytes);
        for (int i = 0; i < 16; i++) bytes[i] ^= vector[i];
        memcpy(vector, next, 16);
    }
}
