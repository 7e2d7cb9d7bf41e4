/* Bloom filter of sources, for the handler and its native twin. */
#ifndef BLOOM_H
#define BLOOM_H

#include <spin_packet.h>

#define BLOOM_BITS 32768u
#define BLOOM_HASHES 4u
/* Insertions after which the filter is cleared. It then has 16 bits per source. */
#define BLOOM_CAPACITY 2048u

/* Handler memory. */
typedef struct bloom_state {
    uint32_t bits[BLOOM_BITS / 32];
    uint32_t inserted; /* since the filter was cleared */
    uint32_t hits;
    uint32_t misses;
} bloom_state;

/* Places of a source: `first`, `first + step`, and so on, modulo the number of bits. */
typedef struct bloom_key {
    uint32_t first;
    uint32_t step;
} bloom_key;

static inline uint32_t mix_word(uint32_t hash, uint32_t word) {
    word *= 0xcc9e2d51;
    word = word << 15 | word >> 17;
    hash ^= word * 0x1b873593;
    hash = hash << 13 | hash >> 19;
    return hash * 5 + 0xe6546b64;
}

/* MurmurHash3 (32 bits) of the two words. */
static inline uint32_t murmur_of(uint32_t seed, uint32_t address, uint32_t ports) {
    uint32_t hash = mix_word(mix_word(seed, address), ports) ^ 8;
    hash = (hash ^ hash >> 16) * 0x85ebca6b;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35;
    return hash ^ hash >> 16;
}

static inline bloom_key bloom_key_of(const spin_packet *p) {
    uint32_t address = spin_load32(p->ip + 12), ports = spin_load32(p->l4);
    /* An odd step visits different bits. */
    return (bloom_key){murmur_of(1, address, ports), murmur_of(2, address, ports) | 1};
}

static inline uint32_t bloom_bit(bloom_key key, uint32_t number) { return (key.first + number * key.step) % BLOOM_BITS; }

static inline bool bloom_has(const uint32_t *bits, bloom_key key) {
    for (uint32_t number = 0; number < BLOOM_HASHES; number++) {
        uint32_t bit = bloom_bit(key, number);
        if (!(bits[bit / 32] >> bit % 32 & 1)) return false;
    }
    return true;
}

#endif
