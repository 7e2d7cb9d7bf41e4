#include "native.h"

#include "../handlers/bloom.h"

static void insert(bloom_state *state, bloom_key key) {
    for (uint32_t number = 0; number < BLOOM_HASHES; number++) {
        uint32_t bit = bloom_bit(key, number);
        set_bits(&state->bits[bit / 32], 1u << bit % 32);
    }
    if (add_and_get(&state->inserted, 1) == BLOOM_CAPACITY) {
        memset(state->bits, 0, sizeof state->bits);
        set(&state->inserted, 0);
    }
}

void bloom(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(bloom_state)) return;
    if (!parse_udp(job, &p) || p.ethertype != SPIN_ETHERTYPE_IPV4) return;
    bloom_state *state = (bloom_state *)job->handler_mem;
    bloom_key key = bloom_key_of(&p);
    if (bloom_has(state->bits, key)) {
        add(&state->hits, 1);
        return;
    }
    add(&state->misses, 1);
    insert(state, key);
}
