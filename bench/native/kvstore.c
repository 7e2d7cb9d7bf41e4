#include "native.h"

#define SETS 125u
#define WAYS 4u
#define REQUEST_BYTES 12u

enum { GET = 1, SET = 2, FOUND = 3, ABSENT = 4, STORED = 5 };

struct set {
    uint32_t lock;
    uint32_t filled;
    uint32_t key[WAYS];
    uint32_t value[WAYS];
};

SPIN_INLINE uint32_t find(const struct set *s, uint32_t key) {
    uint32_t ways = SPIN_MIN(s->filled, WAYS), way = 0;
    while (way < ways && s->key[way] != key) way++;
    return way == ways ? WAYS : way;
}

SPIN_INLINE uint32_t get(const struct set *s, uint32_t key, uint32_t *value) {
    uint32_t way = find(s, key);
    if (way == WAYS) return ABSENT;
    *value = s->value[way];
    return FOUND;
}

SPIN_INLINE uint32_t put(struct set *s, uint32_t key, uint32_t value) {
    uint32_t way = find(s, key);
    if (way == WAYS) way = s->filled++ % WAYS;
    s->key[way] = key;
    s->value[way] = value;
    return STORED;
}

SPIN_INLINE bool serve(struct set *cache, uint8_t *request) {
    uint32_t operation = spin_read_be32(request), key = spin_load32(request + 4), value = spin_load32(request + 8);
    if (operation != GET && operation != SET) return false;
    struct set *s = &cache[spin_ntohl(key) % SETS];
    lock(&s->lock);
    uint32_t answer = operation == GET ? get(s, key, &value) : put(s, key, value);
    unlock(&s->lock);
    spin_write_be32(request, answer);
    spin_store32(request + 8, value);
    return true;
}

SPIN_INLINE void answer(struct job *job, spin_packet *p) {
    if (p->payload_len < REQUEST_BYTES || !spin_is_unicast(p)) return;
    if (!serve((struct set *)job->handler_mem, p->payload)) return;
    spin_store16(p->l4 + 6, 0);
    spin_swap_addresses(p);
    spin_swap_ports(p->l4);
    send_packet(job, p->frame, spin_reply_len(p));
}

SPIN_APART void answer_any(struct job *job) {
    spin_packet p;
    if (parse_udp(job, &p) && p.ethertype == SPIN_ETHERTYPE_IPV4) answer(job, &p);
}

void kvstore(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < SETS * sizeof(struct set)) return;
    if (!parse_plain_udp(job, &p)) return answer_any(job);
    answer(job, &p);
}
