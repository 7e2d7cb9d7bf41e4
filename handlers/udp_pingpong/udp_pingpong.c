/* Sends every UDP datagram back to its sender: swaps MAC addresses, IP addresses and ports.
 *
 * Nothing that is swapped changes a checksum, so none is computed. VLAN tags and IP options go back as they came. */
#include <spin.h>

SPIN_INLINE void answer(spin_packet *p) {
    spin_swap_addresses(p);
    spin_swap_ports(p->l4);
    spin_send_reply(p);
}

/* All that few datagrams are: with tags, options or IPv6; and what gets no answer. */
SPIN_APART void answer_any(const handler_args_t *args) {
    spin_packet p;
    if (spin_parse_udp_l2(args, &p) && spin_is_unicast(&p)) answer(&p);
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_plain_udp_l2(args, &p) || !spin_is_unicast(&p)) return answer_any(args);
    answer(&p);
}
