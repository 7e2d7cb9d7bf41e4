/* Operations of programs. */
#ifndef LARGE_OPERATIONS_H
#define LARGE_OPERATIONS_H

#include "digest.h"
#include "program.h"

/* Returns a word for the checksum, which is the same on every machine. */
typedef uint32_t operation_run(world *w, heap *h, const step *s);

typedef struct operation_kind {
    const char *name;
    operation_run *run;
} operation_kind;

/* What a failed allocation contributes to the checksum. */
enum { NO_MEMORY = 0x0badu };

extern const operation_kind structure_operations[10], type_operations[6], data_operations[9], text_operations[5];

static inline uint32_t next_random(uint32_t *seed) {
    uint32_t x = *seed == 0 ? 0x9e3779b9u : *seed;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *seed = x;
}

static inline uint64_t next_key(uint32_t *seed) {
    uint64_t high = next_random(seed) & 0x3ff;
    return high << 32 | (next_random(seed) & 0x1ff);
}

static inline blob *blob_of(world *w, uint32_t slot) { return &w->blobs[slot % SLOTS]; }
/* A hash of a blob's bytes. */
uint32_t blob_hash(heap *h, const blob *b);
/* Makes a blob of a length. Its bytes depend on the seed: random, few values, runs, or words that grow. */
bool blob_make(heap *h, blob *b, uint32_t length, uint32_t seed);

#endif
