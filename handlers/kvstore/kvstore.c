/* A key-value cache: a UDP datagram asks to get or set a value and comes back as its own answer.
 *
 * A request is three words in network order, { operation, key, value }. The answer has GET or SET replaced by FOUND,
 * ABSENT or STORED, and after FOUND the value. The cache is the context's handler memory. It is set-associative: 4 entries
 * to a set, 125 sets, the set of a key is the key modulo that; a new key takes the place of the set's oldest. */
#include <spin.h>

#define SETS 125u
#define WAYS 4u
#define REQUEST_BYTES 12u

enum { GET = 1, SET = 2, FOUND = 3, ABSENT = 4, STORED = 5 };

/* Keys and values lie as in packets: nothing here computes with values. */
typedef struct set {
    uint32_t lock;
    uint32_t filled; /* keys ever placed: the next one goes to this modulo WAYS */
    uint32_t key[WAYS];
    uint32_t value[WAYS];
} set;

/* The way that holds `key`, WAYS for none. */
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

/* Answers the request in place. False: it is none. */
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
    spin_store16(p->l4 + 6, 0); /* no checksum, which IPv4 allows (RFC 768): that of a large packet costs more than all */
    spin_swap_addresses(p);
    spin_swap_ports(p->l4);
    spin_send_reply(p);
}

/* What few requests are: with tags or options. */
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
