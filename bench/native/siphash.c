#include "native.h"

#include "../handlers/siphash.h"

void siphash(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(siphash_state) || !parse_udp(job, &p)) return;
    siphash_state *state = (siphash_state *)job->handler_mem;
    uint64_t hash = siphash_of(state->key, p.payload, p.payload_len);
    exclusive_or(&state->sum, hash);
    state->last = hash;
}
