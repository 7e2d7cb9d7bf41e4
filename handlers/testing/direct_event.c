/* Writes the number of each datagram, the first four bytes of its payload, to host memory by a HostDirect command. Then copies its
 * first bytes behind it, with an event for the application. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    spin_packet p;
    uint32_t number;
    spin_cmd_t handle;
    if (!spin_parse_udp_l2(args, &p) || p.payload_len < 4) return;
    memcpy(&number, p.payload, 4);
    spin_write_to_host(spin_host_mem(args), number, &handle);
    spin_dma_to_host(spin_host_mem(args) + 8, (uint32_t)p.payload, 4, true, &handle);
}
