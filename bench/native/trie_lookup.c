#include "native.h"

#include "../handlers/trie_lookup.h"

void trie_lookup(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(trie_state) || !parse_ipv4(job, &p)) return;
    trie_state *state = (trie_state *)job->handler_mem;
    uint32_t hop = trie_find(state, p.ip + 16);
    if (hop == 0) {
        add(&state->no_route, 1);
        return;
    }
    memcpy(p.frame, state->hops[hop].mac, sizeof state->hops[hop].mac);
    add(&state->forwarded, 1);
    send_packet(job, p.frame, spin_reply_len(&p));
}
