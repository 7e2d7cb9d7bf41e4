/* Hashes each UDP payload by SipHash-2-4. Handler memory has the key, and receives the latest hash and the exclusive or of all. */
#include <spin.h>

#include "siphash.h"

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (args->task->handler_mem_size < sizeof(siphash_state) || !spin_parse_udp(args, &p)) return;
    siphash_state *state = (siphash_state *)args->task->handler_mem;
    uint64_t hash = siphash_of(state->key, p.payload, p.payload_len);
    /* HPUs have no atomics of 64 bits. The halves are independent of each other. */
    uint32_t *sum = (uint32_t *)&state->sum;
    spin_amo_xor(&sum[0], (uint32_t)hash);
    spin_amo_xor(&sum[1], (uint32_t)(hash >> 32));
    state->last = hash;
}
