#include "native.h"

#define BINS 1025u

void histogram(struct job *job) {
    spin_packet p;
    if (job->scratchpad_size < BINS * 4 || !parse_udp(job, &p)) return;
    uint32_t *bins = job->scratchpad;
    for (uint32_t at = 0; at + 4 <= p.payload_len; at += 4) {
        uint32_t value = spin_load32(p.payload + at);
        if (value < BINS) add(&bins[value], 1);
    }
}
