/* Headers of packets, as they lie in memory.
 *
 * SPIN_ABI_PSPIN: a packet begins with its IP header, and fields are in the HPU's byte order. SPIN_ABI_FPSPIN: it begins with its
 * Ethernet header, and fields are in network order. */
#ifndef SPIN_PACKETS_H
#define SPIN_PACKETS_H

#include <stddef.h>
#include <stdint.h>

#include "spin_conf.h"

typedef struct ip_hdr {
#ifdef SPIN_ABI_PSPIN
    uint8_t version : 4; /* the lower half of the first byte */
    uint8_t ihl : 4;     /* length of this header in words */
#else
    uint8_t ihl : 4; /* length of this header in words: the lower half of the first byte */
    uint8_t version : 4;
#endif
    uint8_t tos;
    uint16_t length; /* of the packet, with this header */
    uint16_t identification;
    uint16_t offset; /* flags and fragment offset */
    uint8_t ttl;
    uint8_t protocol;
    uint16_t checksum;
    uint32_t source_id; /* addresses */
    uint32_t dest_id;
} __attribute__((packed)) ip_hdr_t;

typedef struct udp_hdr {
    uint16_t src_port;
    uint16_t dst_port;
    uint16_t length; /* of the datagram, with this header */
    uint16_t checksum;
} __attribute__((packed)) udp_hdr_t;

#ifdef SPIN_ABI_PSPIN

typedef struct pkt_hdr {
    ip_hdr_t ip_hdr;
    udp_hdr_t udp_hdr;
} __attribute__((packed)) pkt_hdr_t;

#else

typedef struct mac_addr {
    uint8_t data[6];
} __attribute__((packed)) mac_addr_t;

typedef struct eth_hdr {
    mac_addr_t dest;
    mac_addr_t src;
    uint16_t length; /* or EtherType */
} __attribute__((packed)) eth_hdr_t;

typedef struct pkt_hdr {
    eth_hdr_t eth_hdr;
    ip_hdr_t ip_hdr;
    udp_hdr_t udp_hdr;
} __attribute__((packed)) pkt_hdr_t;

/* SLMP, the message protocol of FPsPIN on UDP port 9330. Flags, in the HPU's byte order: last packet of its message; to be
 * acknowledged; acknowledges. */
#define MKEOM 0x8000
#define MKSYN 0x4000
#define MKACK 0x2000
#define EOM(flags) ((flags) & MKEOM)
#define SYN(flags) ((flags) & MKSYN)
#define ACK(flags) ((flags) & MKACK)

typedef struct slmp_hdr {
    uint16_t flags;
    uint32_t msg_id;
    uint32_t pkt_off; /* where in the message its payload belongs */
} __attribute__((packed)) slmp_hdr_t;

typedef struct slmp_pkt_hdr {
    eth_hdr_t eth_hdr;
    ip_hdr_t ip_hdr;
    udp_hdr_t udp_hdr;
    slmp_hdr_t slmp_hdr;
} __attribute__((packed)) slmp_pkt_hdr_t;

#define bswap_16(x) ((uint16_t)((uint16_t)(x) << 8 | (uint16_t)(x) >> 8))
#define bswap_32(x) ((uint32_t)__builtin_bswap32(x))
#ifndef __riscv
/* A driver of the simulation, on the host. */
#include <arpa/inet.h>
#elif !defined(htons)
#define htons(x) bswap_16(x)
#define ntohs(x) bswap_16(x)
#define htonl(x) bswap_32(x)
#define ntohl(x) bswap_32(x)
#endif

/* Bytes of an SLMP packet's payload, by its UDP header. */
#define SLMP_PAYLOAD_LEN(hdrs) (ntohs((hdrs)->udp_hdr.length) - sizeof(udp_hdr_t) - sizeof(slmp_hdr_t))

/* The internet checksum of bytes whose checksum field is 0, in network order: to be stored there as it is (RFC 1071). */
static inline uint16_t ip_checksum(void *data, size_t length) {
    const uint8_t *at = (const uint8_t *)data;
    uint32_t sum = 0;
    for (; length >= 2; length -= 2, at += 2) sum += (uint32_t)at[0] | (uint32_t)at[1] << 8;
    if (length > 0) sum += *at;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

#endif

#endif
