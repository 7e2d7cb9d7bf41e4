/* Compares the CRC-32 of each UDP payload with the four bytes at its end, and counts right and wrong ones. */
#include <spin.h>

#include "crc32.h"

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (args->task->handler_mem_size < sizeof(crc_state) || !spin_parse_udp(args, &p)) return;
    crc_state *state = (crc_state *)args->task->handler_mem;
    if (p.payload_len < CRC_BYTES) {
        spin_add(&state->short_payloads, 1);
        return;
    }
    uint32_t length = p.payload_len - CRC_BYTES;
    uint32_t crc = crc32_of(state->table, p.payload, length);
    spin_add(crc == spin_load32(p.payload + length) ? &state->good : &state->bad, 1);
    state->last = crc;
}
