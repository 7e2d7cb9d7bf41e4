/* Stores outside its memory. The UDP payload's first byte selects the place:
 *   'e' the byte after the packet in L1     'E' the byte after the packet in L2
 *   'b' the byte before the packet in L1    'n' the next HPU's packet window in L1
 *   's' the other clusters' stacks          'h' past the end of handler memory
 *   'c' its own code                        'w' the last byte of the address space
 * With any other byte or packet it stores nothing and sends the packet back. */
#include <spin.h>

static uint8_t *victim(const handler_args_t *args, uint8_t choice) {
    const task_t *task = args->task;
    switch (choice) {
    case 'e': return (uint8_t *)task->pkt_mem + task->pkt_mem_size;
    case 'E': return (uint8_t *)task->l2_pkt_mem + task->pkt_mem_size;
    case 'b': return (uint8_t *)task->pkt_mem - 1;
    case 'n': return (uint8_t *)task->pkt_mem + SPIN_PACKET_WINDOW;
    case 's': return (uint8_t *)(0x10000000u + ((args->cluster_id + 1) % 2) * 0x400000u);
    case 'h': return (uint8_t *)task->handler_mem + task->handler_mem_size;
    case 'c': return (uint8_t *)(uintptr_t)&payload_handler;
    case 'w': return (uint8_t *)0xffffffffu;
    default: return NULL;
    }
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp_l2(args, &p)) return;
    uint8_t *at = p.payload_len > 0 ? victim(args, p.payload[0]) : NULL;
    if (at) *(volatile uint8_t *)at = 0xa5;
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_send_reply(&p);
}
