#include "native.h"

#define IP SPIN_ETH_HEADER
#define UDP (IP + SPIN_IPV4_HEADER)

static inline bool is_plain(const uint8_t *frame, uint32_t length) {
    if (length < UDP + SPIN_UDP_HEADER) return false;
    bool ipv4 = (spin_load32(frame + 12) & 0xffffff) == 0x450008; /* EtherType, version and header length */
    bool whole = (spin_load16(frame + IP + 6) & spin_htons(0x3fff)) == 0;
    bool udp = frame[IP + 9] == SPIN_IPPROTO_UDP;
    return ipv4 && whole && udp && IP + spin_read_be16(frame + IP + 2) == length &&
           UDP + spin_read_be16(frame + UDP + 4) == length;
}

static __attribute__((noinline)) void answer_any(struct job *job) {
    spin_packet p;
    if (!parse_udp(job, &p) || !spin_is_unicast(&p)) return;
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    send_packet(job, p.frame, spin_reply_len(&p));
}

void udp_pingpong(struct job *job) {
    uint8_t *frame = job->packet;
    uint32_t length = job->packet_size;
    spin_packet p = {.frame = frame, .ip = frame + IP, .ethertype = SPIN_ETHERTYPE_IPV4};
    if (!is_plain(frame, length) || !spin_is_unicast(&p)) return answer_any(job);
    spin_swap_mac(frame);
    spin_swap_ipv4(frame + IP);
    spin_swap_ports(frame + UDP);
    send_packet(job, frame, length);
}
