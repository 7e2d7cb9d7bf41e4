/* Answers ICMP echo requests (ping) over IPv4.
 *
 * It answers as a host does (RFC 1122, 3.2.2.6): whole requests with correct checksums, sent by one host to one host. Fragments,
 * truncated packets and broadcasts get no answer. VLAN tags and IP options are returned unchanged. */
#include <spin.h>

#define ECHO_REQUEST 8 /* type 8, code 0, in memory order */
#define ECHO_REPLY 0
#define TTL 64 /* time to live of the reply: the rest of the request's may not suffice for the way back */

static bool ip_header_holds(const spin_packet *p) {
    return spin_checksum_holds(spin_checksum_bytes(0, p->ip, (uint32_t)(p->l4 - p->ip)));
}

/* Sets the time to live, which shares a half-word of the header's sum with the protocol. */
static void set_ttl(uint8_t *ip) {
    uint16_t before = spin_load16(ip + 8);
    ip[8] = TTL;
    spin_store16(ip + 10, spin_checksum_update(spin_load16(ip + 10), before, spin_load16(ip + 8)));
}

/* Turns the message into a reply. The sum that verifies the request also gives the reply's checksum: a reply differs from its
 * request only in the type, which becomes 0. The result is exact even if everything else is zero (0xffff, not 0x0000). */
static bool make_reply(spin_packet *p) {
    uint8_t *icmp = p->l4;
    if (p->l4_len < SPIN_ICMP_HEADER || spin_load16(icmp) != ECHO_REQUEST) return false;
    uint32_t rest = spin_checksum_bytes(0, icmp + 4, p->l4_len - 4);
    uint32_t whole = spin_checksum_add(spin_checksum_add(rest, ECHO_REQUEST), spin_load16(icmp + 2));
    if (!spin_checksum_holds(whole)) return false;
    spin_store16(icmp, ECHO_REPLY);
    spin_store16(icmp + 2, spin_checksum_finish(rest));
    return true;
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_ipv4_l2(args, &p) || p.protocol != SPIN_IPPROTO_ICMP) return;
    if (!spin_is_unicast(&p) || !ip_header_holds(&p) || !make_reply(&p)) return;
    spin_swap_addresses(&p);
    set_ttl(p.ip);
    spin_send_reply(&p);
}
