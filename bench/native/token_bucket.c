#include "native.h"

#include "../handlers/token_bucket.h"

void token_bucket(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(limiter) || !parse_udp(job, &p)) return;
    if (p.ethertype != SPIN_ETHERTYPE_IPV4 || p.payload_len < TIME_BYTES || !spin_is_unicast(&p)) return;
    limiter *l = (limiter *)job->handler_mem;
    flow f = flow_of(&p);
    bucket *b = &l->buckets[flow_hash(&f) % BUCKETS];
    lock(&b->lock);
    bool passes = take_tokens(l, b, &f, spin_read_be32(p.payload), p.frame_len);
    unlock(&b->lock);
    if (!passes) {
        add(&l->dropped, 1);
        return;
    }
    add(&l->passed, 1);
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    send_packet(job, p.frame, spin_reply_len(&p));
}
