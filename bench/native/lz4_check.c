#include "native.h"

#include "../handlers/lz4_check.h"

void lz4_check(struct job *job) {
    spin_packet p;
    if (job->scratchpad_size < sizeof(lz4_stats) || !parse_udp(job, &p)) return;
    lz4_stats *stats = (lz4_stats *)job->scratchpad;
    uint32_t size = lz4_size_of(p.payload, p.payload_len);
    if (size == LZ4_INVALID) {
        add(&stats->invalid, 1);
        return;
    }
    add(&stats->valid, 1);
    add(&stats->bytes, size);
}
