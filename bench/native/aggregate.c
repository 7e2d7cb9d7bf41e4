#include "native.h"

void aggregate(struct job *job) {
    spin_packet p;
    if (job->scratchpad_size < sizeof(uint32_t) || !parse_udp(job, &p)) return;
    uint32_t sum = 0;
    for (uint32_t at = 0; at + 4 <= p.payload_len; at += 4) sum += spin_load32(p.payload + at);
    add(job->scratchpad, sum);
}
