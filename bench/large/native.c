/* The handlers as functions of the host. */
#include <spin_packet.h>

#include "program.h"

/* Nothing else is visible: a name of the C library would replace one of the library's. */
#define EXPORT __attribute__((visibility("default")))
EXPORT void large_header(uint8_t *packet, uint32_t length, uint8_t *memory, uint32_t bytes);
EXPORT void large_payload(uint8_t *packet, uint32_t length, uint8_t *memory, uint32_t bytes);
EXPORT void large_completion(uint8_t *packet, uint32_t length, uint8_t *memory, uint32_t bytes);

void large_header(uint8_t *packet, uint32_t length, uint8_t *memory, uint32_t bytes) {
    (void)packet;
    (void)length;
    program_open(memory, bytes);
}

void large_payload(uint8_t *packet, uint32_t length, uint8_t *memory, uint32_t bytes) {
    spin_packet p;
    if (!spin_parse_udp_at(packet, length, &p)) return;
    program_run(memory, bytes, p.payload, p.payload_len);
}

void large_completion(uint8_t *packet, uint32_t length, uint8_t *memory, uint32_t bytes) {
    (void)packet;
    (void)length;
    program_close(memory, bytes);
}
