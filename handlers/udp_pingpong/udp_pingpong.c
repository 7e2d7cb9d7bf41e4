/* Sends every UDP datagram back to its sender: swaps MAC addresses, IP addresses and ports.
 *
 * Nothing that is swapped changes a checksum, so none is computed. VLAN tags and IP options go back as they came. */
#include <spin.h>

#define IP SPIN_ETH_HEADER
#define UDP (IP + SPIN_IPV4_HEADER)

/* Whether the frame is the common one: no tag, an IPv4 header without options, no fragment, no padding, lengths that
 * agree. Six loads where the parser takes many; what this does not know is left to the parser. */
static inline bool is_plain(const uint8_t *frame, uint32_t length) {
    if (length < UDP + SPIN_UDP_HEADER) return false;
    bool ipv4 = (spin_load32(frame + 12) & 0xffffff) == 0x450008; /* EtherType, version and header length */
    bool whole = (spin_load16(frame + IP + 6) & spin_htons(0x3fff)) == 0;
    bool udp = frame[IP + 9] == SPIN_IPPROTO_UDP;
    return ipv4 && whole && udp && IP + spin_read_be16(frame + IP + 2) == length &&
           UDP + spin_read_be16(frame + UDP + 4) == length;
}

/* Everything else: tags, options, padding, IPv6; and what gets no answer. */
static __attribute__((noinline)) void answer_any(const handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp_l2(args, &p) || !spin_is_unicast(&p)) return;
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_send_reply(&p);
}

void payload_handler(handler_args_t *args) {
    uint8_t *frame = (uint8_t *)args->task->l2_pkt_mem;
    uint32_t length = args->task->pkt_mem_size;
    spin_packet p = {.frame = frame, .ip = frame + IP, .ethertype = SPIN_ETHERTYPE_IPV4};
    if (!is_plain(frame, length) || !spin_is_unicast(&p)) return answer_any(args);
    spin_swap_mac(frame);
    spin_swap_ipv4(frame + IP);
    spin_swap_ports(frame + UDP);
    spin_cmd_t handle;
    spin_send_packet(frame, length, &handle);
}
