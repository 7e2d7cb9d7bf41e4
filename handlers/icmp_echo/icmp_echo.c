/* Answers ICMP echo requests (ping) over IPv4.
 *
 * As a host would (RFC 1122, 3.2.2.6), it answers whole requests with right checksums, sent by one host to one host:
 * no fragments, no truncated packets, no broadcasts. VLAN tags and IP options go back as they came. */
#include <spin.h>

#define ECHO_REQUEST 8 /* type 8, code 0, as the half-word lies in memory */
#define ECHO_REPLY 0
#define TTL 64 /* that of the reply is ours to set: what is left of the request's may not reach back */

static bool ip_header_holds(const spin_packet *p) {
    return spin_checksum_holds(spin_checksum_bytes(0, p->ip, (uint32_t)(p->l4 - p->ip)));
}

/* Time to live and protocol share a half-word of the header's sum. */
static void set_ttl(uint8_t *ip) {
    uint16_t before = spin_load16(ip + 8);
    ip[8] = TTL;
    spin_store16(ip + 10, spin_checksum_update(spin_load16(ip + 10), before, spin_load16(ip + 8)));
}

/* Makes the message a reply. The sum that proves the request is also the reply's checksum, for a reply differs from
 * its request in nothing but the type, which becomes 0: exact also where all else is zero (0xffff, not 0x0000). */
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
