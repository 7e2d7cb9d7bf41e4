#include "native.h"

#define BINS 1025u

void histogram(struct job *job) {
    spin_packet p;
    if (job->scratchpad_size < BINS * 4 || !parse_udp(job, &p)) return;
    uint32_t *bins = job->scratchpad;
    uint32_t count = p.payload_len / 4;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = spin_load32(p.payload + 4 * i);
        if (value < BINS) add(&bins[value], 1);
    }
}
