/* Prints the UDP payload's second byte through an address computed from its first byte, then sends the packet back. The code
 * alone does not show that the address is a device's. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp(args, &p) || p.payload_len < 2) return;
    const task_t *task = args->task;
    *(volatile uint8_t *)((uint32_t)p.payload[0] << 24 | 0x104000u) = p.payload[1];
    spin_cmd_t handle;
    spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &handle);
}
