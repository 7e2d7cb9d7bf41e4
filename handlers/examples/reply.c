#include <spin.h>

/* Answers every UDP datagram with its own payload. */
void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp_l2(args, &p)) return; /* cut short, a fragment, not UDP: no answer */
    if (!spin_is_unicast(&p)) return;
    spin_swap_addresses(&p); /* MAC and IP */
    spin_swap_ports(p.l4);
    spin_send_reply(&p); /* the buffer it arrived in leaves again: no copy */
}
