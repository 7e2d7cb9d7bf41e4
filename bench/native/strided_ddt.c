#include "native.h"

#define OFFSET_BYTES 4u

struct layout {
    uint32_t block;
    uint32_t stride;
};

SPIN_INLINE void scatter(struct job *job, const spin_packet *p) {
    const struct layout to = *(const struct layout *)job->handler_mem;
    if (to.block == 0 || p->payload_len < OFFSET_BYTES) return;
    uint32_t offset = spin_read_be32(p->payload), left = p->payload_len - OFFSET_BYTES;
    const uint8_t *from = p->payload + OFFSET_BYTES;
    uint32_t within = offset % to.block;
    uint64_t block = (uint64_t)(offset / to.block) * to.stride;
    while (left > 0) {
        uint32_t length = SPIN_MIN(to.block - within, left);
        dma_to_host(job, block + within, from, length);
        left -= length;
        from += length;
        block += to.stride;
        within = 0;
    }
}

SPIN_APART void scatter_any(struct job *job) {
    spin_packet p;
    if (parse_udp(job, &p)) scatter(job, &p);
}

void strided_ddt(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(struct layout)) return;
    if (!parse_plain_udp(job, &p)) return scatter_any(job);
    scatter(job, &p);
}
