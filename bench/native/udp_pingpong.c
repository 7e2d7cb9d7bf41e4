#include "native.h"

SPIN_INLINE void answer(struct job *job, spin_packet *p) {
    spin_swap_addresses(p);
    spin_swap_ports(p->l4);
    send_packet(job, p->frame, spin_reply_len(p));
}

SPIN_APART void answer_any(struct job *job) {
    spin_packet p;
    if (parse_udp(job, &p) && spin_is_unicast(&p)) answer(job, &p);
}

void udp_pingpong(struct job *job) {
    spin_packet p;
    if (!parse_plain_udp(job, &p) || !spin_is_unicast(&p)) return answer_any(job);
    answer(job, &p);
}
