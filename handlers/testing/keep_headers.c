/* Writes the headers of each UDP datagram to host memory, at a place of its sender. Measures the cost of a command that copies a few
 * bytes of a packet that the handler has read. */
#include <spin.h>

/* Bytes per cluster. Clusters are far apart: see to_host.c. */
#define CLUSTER 65536u
#define PLACES 64u
#define PLACE 64u

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_plain_udp(args, &p)) return;
    uint32_t sender = p.ip[15] + p.l4[1], at = args->cluster_id * CLUSTER + sender % PLACES * PLACE;
    spin_cmd_t handle;
    spin_dma_to_host(spin_host_mem(args) + at, (uint32_t)p.frame, SPIN_PLAIN_UDP_HEADERS, false, &handle);
}
