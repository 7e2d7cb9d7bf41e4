/* Uses two thirds of the PsPIN preset's L2 as .bss. It checks that both ends are equal, increments both, and sends the packet back
 * with their value in its last byte. */
#include <spin.h>

static uint8_t big[2 << 20];

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    volatile uint8_t *first = &big[0], *last = &big[sizeof big - 1];
    if (*first != *last) return spin_report_error(1);
    *first = *last = (uint8_t)(*first + 1);
    uint8_t *packet = (uint8_t *)task->pkt_mem;
    if (task->pkt_mem_size == 0) return;
    packet[task->pkt_mem_size - 1] = *last;
    spin_cmd_t handle;
    spin_send_packet(packet, task->pkt_mem_size, &handle);
}
