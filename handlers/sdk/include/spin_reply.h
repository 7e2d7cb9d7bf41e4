/* Functions that turn a packet into its answer: exchanged addresses, the length to send, checksums. */
#ifndef SPIN_REPLY_H
#define SPIN_REPLY_H

#include "spin_checksum.h"
#include "spin_command.h"
#include "spin_packet.h"

/* Exchanges destination and source of the Ethernet header. */
static inline void spin_swap_mac(uint8_t *eth) {
    uint32_t dst_head = spin_load32(eth), src_head = spin_load32(eth + 6);
    uint16_t dst_tail = spin_load16(eth + 4), src_tail = spin_load16(eth + 10);
    spin_store32(eth, src_head);
    spin_store16(eth + 4, src_tail);
    spin_store32(eth + 6, dst_head);
    spin_store16(eth + 10, dst_tail);
}

/* Exchanges source and destination of an IPv4 header. The checksum stays right, because a sum does not depend on the order. */
static inline void spin_swap_ipv4(uint8_t *ip) {
    uint32_t source = spin_load32(ip + 12), destination = spin_load32(ip + 16);
    spin_store32(ip + 12, destination);
    spin_store32(ip + 16, source);
}

/* Exchanges source and destination of an IPv6 header. */
static inline void spin_swap_ipv6(uint8_t *ip) {
    for (uint8_t *at = ip + 8; at < ip + 24; at += 4) {
        uint32_t source = spin_load32(at), destination = spin_load32(at + 16);
        spin_store32(at, destination);
        spin_store32(at + 16, source);
    }
}

/* Exchanges the ports of a UDP or TCP header. */
static inline void spin_swap_ports(uint8_t *l4) {
    uint32_t ports = spin_load32(l4);
    spin_store32(l4, ports << 16 | ports >> 16);
}

/* Exchanges the addresses of Ethernet and IP. */
static inline void spin_swap_addresses(spin_packet *p) {
    spin_swap_mac(p->frame);
    if (p->ethertype == SPIN_ETHERTYPE_IPV4)
        spin_swap_ipv4(p->ip);
    else
        spin_swap_ipv6(p->ip);
}

/* Whether one host sent the packet to one host, so that an answer with exchanged addresses makes sense. It returns false for
 *
 *   - group MAC addresses (IEEE 802, first bit);
 *   - IPv4 source or destination 224.0.0.0 and above: multicast, reserved, limited broadcast (RFC 1122, 3.2.1.3);
 *   - IPv4 source or destination in 0.0.0.0/8;
 *   - IPv6 multicast (ff00::/8) as source or destination, and an unspecified IPv6 source. */
static inline bool spin_is_unicast(const spin_packet *p) {
    if ((p->frame[0] | p->frame[6]) & 1) return false;
    const uint8_t *ip = p->ip;
    if (p->ethertype == SPIN_ETHERTYPE_IPV4) return ip[12] - 1u < 223 && ip[16] - 1u < 223;
    uint32_t source = spin_load32(ip + 8) | spin_load32(ip + 12) | spin_load32(ip + 16) | spin_load32(ip + 20);
    return ip[8] != 0xff && ip[24] != 0xff && source != 0;
}

/* Bytes to send back: up to the IP packet's end, plus received padding up to the minimum Ethernet frame. Further bytes are a
 * trailer, which is not repeated. */
static inline uint32_t spin_reply_len(const spin_packet *p) {
    uint32_t end = (uint32_t)(p->l4 - p->frame) + p->l4_len;
    return end >= SPIN_ETH_MIN ? end : SPIN_MIN(p->frame_len, SPIN_ETH_MIN);
}

/* Computes and writes the datagram's checksum: for handlers that changed the payload. */
static inline void spin_udp_write_checksum(spin_packet *p) {
    bool v4 = p->ethertype == SPIN_ETHERTYPE_IPV4;
    uint32_t udp_len = SPIN_UDP_HEADER + p->payload_len;
    spin_store16(p->l4 + 6, 0);
    uint32_t sum = v4 ? spin_checksum_bytes(0, p->ip + 12, 8) : spin_checksum_bytes(0, p->ip + 8, 32);
    sum = spin_checksum_add(sum, spin_htons(SPIN_IPPROTO_UDP) + (uint32_t)spin_htons(udp_len));
    uint16_t checksum = spin_checksum_finish(spin_checksum_bytes(sum, p->l4, udp_len));
    spin_store16(p->l4 + 6, checksum ? checksum : 0xffff); /* 0 would mean no checksum: RFC 768 */
}

/* Sends the parsed packet back. */
static inline void spin_send_reply(const spin_packet *p) {
    spin_cmd_t handle;
    spin_send_packet(p->frame, spin_reply_len(p), &handle);
}

#endif
