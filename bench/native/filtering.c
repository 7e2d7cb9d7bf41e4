#include "native.h"

#define ENTRIES 65536u
#define PROBES 8u
#define RECORD 64u

struct entry {
    uint32_t source;
    uint32_t port;
};

SPIN_INLINE uint32_t hash(uint32_t source) { return source * 0x9e3779b1u >> 16; }

SPIN_INLINE uint32_t find(const struct entry *table, uint32_t source) {
    uint32_t at = hash(source);
    for (uint32_t probe = 0; probe < PROBES; probe++, at = (at + 1) % ENTRIES) {
        if (table[at].source == source) return at;
        if (table[at].source == 0) break;
    }
    return ENTRIES;
}

SPIN_INLINE void rewrite(uint8_t *udp, uint16_t port) {
    uint16_t checksum = spin_load16(udp + 6);
    if (checksum) spin_store16(udp + 6, spin_checksum_update(checksum, spin_load16(udp + 2), port));
    spin_store16(udp + 2, port);
}

SPIN_INLINE void filter(struct job *job, spin_packet *p) {
    uint32_t source = spin_load32(p->ip + 12);
    if (source == 0) return;
    const struct entry *table = (const struct entry *)job->handler_mem;
    uint32_t at = find(table, source);
    if (at == ENTRIES) return;
    rewrite(p->l4, (uint16_t)table[at].port);
    uint32_t length = SPIN_MIN((uint32_t)(p->payload - p->frame), RECORD);
    dma_to_host(job, (uint64_t)at * RECORD, p->frame, length);
}

SPIN_APART void filter_any(struct job *job) {
    spin_packet p;
    if (parse_udp(job, &p) && p.ethertype == SPIN_ETHERTYPE_IPV4) filter(job, &p);
}

void filtering(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < ENTRIES * sizeof(struct entry)) return;
    if (!parse_plain_udp(job, &p)) return filter_any(job);
    filter(job, &p);
}
