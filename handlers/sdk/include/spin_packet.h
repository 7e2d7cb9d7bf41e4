/* Checked views of a packet: Ethernet, VLAN tags, IPv4, IPv6, UDP.
 *
 * A parser that returns true has checked that every byte it points at lies in the frame. A handler that stays within the
 * lengths of spin_packet therefore cannot fault. Parsers return false for a packet that is truncated, a fragment, or has
 * contradictory lengths: no answer to half a packet is right.
 *
 * Each packet is in L1 (`task->pkt_mem`) and in L2 (`task->l2_pkt_mem`). Parse the L1 copy to inspect a packet. To send
 * the packet itself back, changed, use the L2 copy (`_l2`). Its buffer is the received frame, and a send of it moves the
 * buffer; a send from L1 copies the bytes.
 */
#ifndef SPIN_PACKET_H
#define SPIN_PACKET_H

#include "spin_bytes.h"
#include "spin_task.h"

#define SPIN_ETH_HEADER 14u
#define SPIN_VLAN_TAG 4u
#define SPIN_MAX_VLAN_TAGS 2u
#define SPIN_IPV4_HEADER 20u
#define SPIN_IPV6_HEADER 40u
#define SPIN_UDP_HEADER 8u
#define SPIN_ICMP_HEADER 8u
/* Bytes before the payload of a datagram without tags and options. */
#define SPIN_PLAIN_UDP_HEADERS (SPIN_ETH_HEADER + SPIN_IPV4_HEADER + SPIN_UDP_HEADER)
/* Minimum length of an Ethernet frame without its check sequence (IEEE 802.3, 4.2.3.3). */
#define SPIN_ETH_MIN 60u

#define SPIN_ETHERTYPE_IPV4 0x0800u
#define SPIN_ETHERTYPE_VLAN 0x8100u
#define SPIN_ETHERTYPE_QINQ 0x88a8u
#define SPIN_ETHERTYPE_IPV6 0x86ddu
#define SPIN_IPPROTO_ICMP 1u
#define SPIN_IPPROTO_TCP 6u
#define SPIN_IPPROTO_UDP 17u

/* A packet and its headers. Each pointer is set by the parser that checked it. */
typedef struct spin_packet {
    uint8_t *frame;       /* Ethernet header */
    uint32_t frame_len;   /* bytes of the frame, padding included */
    uint8_t *ip;          /* IP header, after any VLAN tags */
    uint8_t *l4;          /* data behind the IP header and its options */
    uint32_t l4_len;      /* bytes at `l4`, without padding */
    uint8_t *payload;     /* data behind the UDP header */
    uint32_t payload_len; /* bytes of the payload by UDP's length field */
    uint16_t ethertype;   /* EtherType of the network header */
    uint8_t protocol;     /* IPv4 protocol or IPv6 next header */
} spin_packet;

/* Finds the EtherType behind at most SPIN_MAX_VLAN_TAGS tags. Returns false for a truncated frame. */
static inline bool spin_parse_ethernet_at(uint8_t *frame, uint32_t length, spin_packet *p) {
    uint32_t type_at = SPIN_ETH_HEADER - 2;
    p->frame = frame;
    p->frame_len = length;
    for (uint32_t tags = 0;; tags++, type_at += SPIN_VLAN_TAG) {
        if (length < type_at + 2) return false;
        p->ethertype = spin_read_be16(frame + type_at);
        bool tag = p->ethertype == SPIN_ETHERTYPE_VLAN || p->ethertype == SPIN_ETHERTYPE_QINQ;
        if (!tag || tags == SPIN_MAX_VLAN_TAGS) break;
    }
    p->ip = frame + type_at + 2;
    return true;
}

/* Bytes from `at` to the end of the frame. */
static inline uint32_t spin_bytes_left(const spin_packet *p, const uint8_t *at) {
    return p->frame_len - (uint32_t)(at - p->frame);
}

/* Parses a whole IPv4 packet: not a fragment, not truncated. Checksums are not verified. */
static inline bool spin_parse_ipv4_at(uint8_t *frame, uint32_t length, spin_packet *p) {
    if (!spin_parse_ethernet_at(frame, length, p) || p->ethertype != SPIN_ETHERTYPE_IPV4) return false;
    uint32_t left = spin_bytes_left(p, p->ip);
    if (left < SPIN_IPV4_HEADER || p->ip[0] >> 4 != 4) return false;
    uint32_t header = (p->ip[0] & 15u) * 4;
    uint32_t total = spin_read_be16(p->ip + 2);
    if (header < SPIN_IPV4_HEADER || total < header || total > left) return false;
    if (spin_load16(p->ip + 6) & spin_htons(0x3fff)) return false; /* more fragments, or not the first one */
    p->l4 = p->ip + header;
    p->l4_len = total - header;
    p->protocol = p->ip[9];
    return true;
}

/* Parses a whole IPv6 packet. Extension headers are not followed: `protocol` is the first next-header field, 44 for a
 * fragment. */
static inline bool spin_parse_ipv6_at(uint8_t *frame, uint32_t length, spin_packet *p) {
    if (!spin_parse_ethernet_at(frame, length, p) || p->ethertype != SPIN_ETHERTYPE_IPV6) return false;
    uint32_t left = spin_bytes_left(p, p->ip);
    if (left < SPIN_IPV6_HEADER || p->ip[0] >> 4 != 6) return false;
    p->l4_len = spin_read_be16(p->ip + 4);
    if (p->l4_len > left - SPIN_IPV6_HEADER) return false;
    p->l4 = p->ip + SPIN_IPV6_HEADER;
    p->protocol = p->ip[6];
    return true;
}

/* Parses a whole UDP datagram over IPv4 or IPv6. */
static inline bool spin_parse_udp_at(uint8_t *frame, uint32_t length, spin_packet *p) {
    if (!spin_parse_ipv4_at(frame, length, p) && !spin_parse_ipv6_at(frame, length, p)) return false;
    if (p->protocol != SPIN_IPPROTO_UDP || p->l4_len < SPIN_UDP_HEADER) return false;
    uint32_t udp_len = spin_read_be16(p->l4 + 4);
    if (udp_len < SPIN_UDP_HEADER || udp_len > p->l4_len) return false;
    p->payload = p->l4 + SPIN_UDP_HEADER;
    p->payload_len = udp_len - SPIN_UDP_HEADER;
    return true;
}

/* Parses the most common kind of datagram: no tag, IPv4 without options, not a fragment, UDP fills the IP packet. Its headers
 * are at offsets that the compiler knows. If this returns false, spin_parse_udp_at may still accept the packet. Call that one
 * from a separate function, as the last call, to keep the handler's common path short. */
static inline bool spin_parse_plain_udp_at(uint8_t *frame, uint32_t length, spin_packet *p) {
    const uint32_t ip_at = SPIN_ETH_HEADER, udp_at = ip_at + SPIN_IPV4_HEADER, payload_at = SPIN_PLAIN_UDP_HEADERS;
    if (length < payload_at) return false;
    /* Differences from the expected header: EtherType, version and header length; fragment (except the don't-fragment bit) and
     * protocol, with the time to live between them masked out; the lengths. */
    uint32_t total = spin_read_be16(frame + ip_at + 2), udp_len = spin_read_be16(frame + udp_at + 4);
    uint32_t kind = (spin_load32(frame + 12) & 0xffffff) ^ 0x450008;
    uint32_t whole_udp = (spin_load32(frame + ip_at + 6) & 0xff00ff3f) ^ (uint32_t)SPIN_IPPROTO_UDP << 24;
    uint32_t all = total ^ (SPIN_IPV4_HEADER + udp_len);
    uint32_t differs = kind | whole_udp | all;
    __asm__("" : "+r"(differs)); /* forces one branch: compilers would branch for each term and read the headers piece by piece */
    /* Wraps to a huge value if udp_len is below the header's length, so the check below also rejects it. */
    uint32_t payload_len = udp_len - SPIN_UDP_HEADER;
    if (differs != 0 || payload_len > length - payload_at) return false;
    *p = (spin_packet){
        .frame = frame,
        .frame_len = length,
        .ip = frame + ip_at,
        .l4 = frame + udp_at,
        .l4_len = udp_len,
        .payload = frame + payload_at,
        .payload_len = payload_len,
        .ethertype = SPIN_ETHERTYPE_IPV4,
        .protocol = SPIN_IPPROTO_UDP,
    };
    return true;
}

/* Parsers of the handler's packet: its L1 copy, or its L2 copy (`_l2`) for sending back. The L2 parsers read no more bytes than
 * the L1 copy holds: in a context that requested fewer bytes in L1, a longer packet is truncated. */
static inline bool spin_parse_ipv4(const handler_args_t *args, spin_packet *p) {
    return spin_parse_ipv4_at((uint8_t *)args->task->pkt_mem, args->task->pkt_mem_size, p);
}
static inline bool spin_parse_ipv4_l2(const handler_args_t *args, spin_packet *p) {
    return spin_parse_ipv4_at((uint8_t *)args->task->l2_pkt_mem, args->task->pkt_mem_size, p);
}
static inline bool spin_parse_ipv6(const handler_args_t *args, spin_packet *p) {
    return spin_parse_ipv6_at((uint8_t *)args->task->pkt_mem, args->task->pkt_mem_size, p);
}
static inline bool spin_parse_udp(const handler_args_t *args, spin_packet *p) {
    return spin_parse_udp_at((uint8_t *)args->task->pkt_mem, args->task->pkt_mem_size, p);
}
static inline bool spin_parse_udp_l2(const handler_args_t *args, spin_packet *p) {
    return spin_parse_udp_at((uint8_t *)args->task->l2_pkt_mem, args->task->pkt_mem_size, p);
}
static inline bool spin_parse_plain_udp(const handler_args_t *args, spin_packet *p) {
    return spin_parse_plain_udp_at((uint8_t *)args->task->pkt_mem, args->task->pkt_mem_size, p);
}
static inline bool spin_parse_plain_udp_l2(const handler_args_t *args, spin_packet *p) {
    return spin_parse_plain_udp_at((uint8_t *)args->task->l2_pkt_mem, args->task->pkt_mem_size, p);
}

#endif
