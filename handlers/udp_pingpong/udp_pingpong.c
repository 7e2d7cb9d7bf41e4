/* Sends every UDP datagram back to its sender: exchanges MAC addresses, IP addresses and ports.
 *
 * The exchange changes no checksum, so none is computed. VLAN tags and IP options are returned unchanged. */
#include <spin.h>

SPIN_INLINE void answer(spin_packet *p) {
    spin_swap_addresses(p);
    spin_swap_ports(p->l4);
    spin_send_reply(p);
}

/* Answers rare datagrams, with tags, options or IPv6. Packets that get no answer end here too. */
SPIN_APART void answer_any(const handler_args_t *args) {
    spin_packet p;
    if (spin_parse_udp_l2(args, &p) && spin_is_unicast(&p)) answer(&p);
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_plain_udp_l2(args, &p) || !spin_is_unicast(&p)) return answer_any(args);
    answer(&p);
}
