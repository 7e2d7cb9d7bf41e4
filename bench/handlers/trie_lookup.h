/* Longest-prefix match in a trie of four levels, for the handler and its native twin. */
#ifndef TRIE_LOOKUP_H
#define TRIE_LOOKUP_H

#include <spin_packet.h>

#define TRIE_NODES 256u
#define NEXT_HOPS 64u

/* An entry of a node, for one value of an address byte. */
typedef struct trie_entry {
    uint16_t child; /* node of the next byte, 0 for none: node 0 is the root */
    uint16_t hop;   /* next hop of the longest prefix that ends in this byte, 0 for none */
} trie_entry;

typedef struct next_hop {
    uint8_t mac[6];
    uint16_t unused;
} next_hop;

/* Handler memory. The application writes the trie and the next hops. */
typedef struct trie_state {
    trie_entry nodes[TRIE_NODES][256];
    next_hop hops[NEXT_HOPS];
    uint32_t forwarded;
    uint32_t no_route;
} trie_state;

/* Returns the next hop of an IPv4 address in network order, or 0 if there is no route. */
static inline uint32_t trie_find(const trie_state *state, const uint8_t *address) {
    uint32_t node = 0, hop = 0;
    for (uint32_t level = 0; level < 4; level++) {
        const trie_entry *entry = &state->nodes[node][address[level]];
        if (entry->hop) hop = entry->hop;
        node = entry->child;
        if (node == 0) break;
    }
    return hop;
}

#endif
