/* A key-value cache: a UDP datagram requests to get or set a value and is returned as the answer.
 *
 * A request is three words in network order, { operation, key, value }. In the answer, FOUND, ABSENT or STORED replaces GET or
 * SET, and after FOUND the stored value replaces the request's. The cache is the context's handler memory. It is set-associative:
 * 125 sets of 4 entries, and a key's set is the key modulo 125. A new key replaces the oldest one of its set. */
#include <spin.h>

#define SETS 125u
#define WAYS 4u
#define REQUEST_BYTES 12u

enum { GET = 1, SET = 2, FOUND = 3, ABSENT = 4, STORED = 5 };

/* A set. Keys and values are stored in packet order, because no code computes with values. */
typedef struct set {
    uint32_t lock;
    uint32_t filled; /* number of keys ever placed; the next one goes to this modulo WAYS */
    uint32_t key[WAYS];
    uint32_t value[WAYS];
} set;

/* The way of `key`, or WAYS if there is none. */
SPIN_INLINE uint32_t find(const set *s, uint32_t key) {
    uint32_t ways = SPIN_MIN(s->filled, WAYS), way = 0;
    while (way < ways && s->key[way] != key) way++;
    return way == ways ? WAYS : way;
}

SPIN_INLINE uint32_t get(const set *s, uint32_t key, uint32_t *value) {
    uint32_t way = find(s, key);
    if (way == WAYS) return ABSENT;
    *value = s->value[way];
    return FOUND;
}

SPIN_INLINE uint32_t put(set *s, uint32_t key, uint32_t value) {
    uint32_t way = find(s, key);
    if (way == WAYS) way = s->filled++ % WAYS;
    s->key[way] = key;
    s->value[way] = value;
    return STORED;
}

/* Answers the request in place. Returns false if the packet is no request. */
SPIN_INLINE bool serve(set *cache, uint8_t *request) {
    uint32_t operation = spin_read_be32(request), key = spin_load32(request + 4), value = spin_load32(request + 8);
    if (operation != GET && operation != SET) return false;
    set *s = &cache[spin_ntohl(key) % SETS];
    spin_lock(&s->lock);
    uint32_t answer = operation == GET ? get(s, key, &value) : put(s, key, value);
    spin_unlock(&s->lock);
    spin_write_be32(request, answer);
    spin_store32(request + 8, value);
    return true;
}

SPIN_INLINE void answer(set *cache, spin_packet *p) {
    if (p->payload_len < REQUEST_BYTES || !spin_is_unicast(p) || !serve(cache, p->payload)) return;
    spin_store16(p->l4 + 6, 0); /* no checksum, which IPv4 allows (RFC 768): a large packet's costs more than the rest of the handler */
    spin_swap_addresses(p);
    spin_swap_ports(p->l4);
    spin_send_reply(p);
}

/* Answers rare requests: with tags or options. */
SPIN_APART void answer_any(const handler_args_t *args) {
    spin_packet p;
    if (spin_parse_udp_l2(args, &p) && p.ethertype == SPIN_ETHERTYPE_IPV4) answer((set *)args->task->handler_mem, &p);
}

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_packet p;
    if (task->handler_mem_size < SETS * sizeof(set)) return;
    if (!spin_parse_plain_udp_l2(args, &p)) return answer_any(args);
    answer((set *)task->handler_mem, &p);
}
