/* Counts UDP packets by the last byte of their source address, in handler memory, and copies each count to host memory. */
#include <spin.h>

SPIN_HANDLER_DATA uint32_t packets[256];

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_plain_udp(args, &p)) return;
    uint32_t source = p.ip[15];
    spin_amo_add(&packets[source], 1);
    /* The copy reads the count when it is carried out. The event wakes the program. */
    spin_cmd_t handle;
    spin_dma_to_host(spin_host_mem(args) + source * 4, (uint32_t)&packets[source], 4, true, &handle);
}
