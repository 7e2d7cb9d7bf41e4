/* Sends UDP datagrams over IPv4 back as long as their flow has tokens, and drops the others. Time is that of the packets: their
 * payload begins with nanoseconds modulo 2^32. */
#include <spin.h>

#include "token_bucket.h"

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (args->task->handler_mem_size < sizeof(limiter) || !spin_parse_udp_l2(args, &p)) return;
    if (p.ethertype != SPIN_ETHERTYPE_IPV4 || p.payload_len < TIME_BYTES || !spin_is_unicast(&p)) return;
    limiter *l = (limiter *)args->task->handler_mem;
    flow f = flow_of(&p);
    bucket *b = &l->buckets[flow_hash(&f) % BUCKETS];
    spin_lock(&b->lock);
    bool passes = take_tokens(l, b, &f, spin_read_be32(p.payload), p.frame_len);
    spin_unlock(&b->lock);
    if (!passes) {
        spin_add(&l->dropped, 1);
        return;
    }
    spin_add(&l->passed, 1);
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_send_reply(&p);
}
