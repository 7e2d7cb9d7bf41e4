#include "native.h"

#define ELEMENTS 512u

void reduce(struct job *job) {
    spin_packet p;
    if (job->scratchpad_size < ELEMENTS * 4 || !parse_udp(job, &p)) return;
    uint32_t *vector = job->scratchpad;
    uint32_t count = SPIN_MIN(p.payload_len / 4, ELEMENTS);
    for (uint32_t i = 0; i < count; i++) add(&vector[i], spin_load32(p.payload + 4 * i));
}
