/* Counts UDP datagrams over IPv4 whose source address and ports a Bloom filter in handler memory has already seen. Others are
 * inserted. The filter is cleared when it is full. */
#include <spin.h>

#include "bloom.h"

static void insert(bloom_state *state, bloom_key key) {
    for (uint32_t number = 0; number < BLOOM_HASHES; number++) {
        uint32_t bit = bloom_bit(key, number);
        spin_amo_or(&state->bits[bit / 32], 1u << bit % 32);
    }
    if (spin_amo_add(&state->inserted, 1) + 1 == BLOOM_CAPACITY) {
        memset(state->bits, 0, sizeof state->bits);
        spin_amo_swap(&state->inserted, 0);
    }
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (args->task->handler_mem_size < sizeof(bloom_state)) return;
    if (!spin_parse_udp(args, &p) || p.ethertype != SPIN_ETHERTYPE_IPV4) return;
    bloom_state *state = (bloom_state *)args->task->handler_mem;
    bloom_key key = bloom_key_of(&p);
    if (bloom_has(state->bits, key)) {
        spin_add(&state->hits, 1);
        return;
    }
    spin_add(&state->misses, 1);
    insert(state, key);
}
