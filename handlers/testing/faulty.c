/* Stores outside its memory. The UDP payload's first byte selects the place:
 *   'h' past the end of handler memory      'e' the byte after the packet in L2
 *   'w' the last byte of the address space
 * With any other byte it sends the packet back. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_packet p;
    if (!spin_parse_udp_l2(args, &p) || p.payload_len == 0) return;
    uint8_t order = p.payload[0];
    if (order == 'h') *((volatile uint8_t *)task->handler_mem + task->handler_mem_size) = 1;
    if (order == 'e') *((volatile uint8_t *)task->l2_pkt_mem + task->pkt_mem_size) = 1;
    if (order == 'w') *(volatile uint8_t *)0xffffffffu = 1;
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_send_reply(&p);
}
