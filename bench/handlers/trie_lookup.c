/* Sends IPv4 packets to the next hop of their destination: the longest prefix in a trie decides. Packets without a route are
 * counted and dropped. */
#include <spin.h>

#include "trie_lookup.h"

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (args->task->handler_mem_size < sizeof(trie_state) || !spin_parse_ipv4_l2(args, &p)) return;
    trie_state *state = (trie_state *)args->task->handler_mem;
    uint32_t hop = trie_find(state, p.ip + 16);
    if (hop == 0) {
        spin_add(&state->no_route, 1);
        return;
    }
    memcpy(p.frame, state->hops[hop].mac, sizeof state->hops[hop].mac);
    spin_add(&state->forwarded, 1);
    spin_send_reply(&p);
}
