#include "native.h"

#include "../handlers/crc32.h"

void crc32(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(crc_state) || !parse_udp(job, &p)) return;
    crc_state *state = (crc_state *)job->handler_mem;
    if (p.payload_len < CRC_BYTES) {
        add(&state->short_payloads, 1);
        return;
    }
    uint32_t length = p.payload_len - CRC_BYTES;
    uint32_t crc = crc32_of(state->table, p.payload, length);
    add(crc == spin_load32(p.payload + length) ? &state->good : &state->bad, 1);
    state->last = crc;
}
