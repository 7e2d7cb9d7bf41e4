/* Sends each packet twice, from L2 and from L1; the second one has its last byte inverted. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_cmd_t first, second;
    if (task->pkt_mem_size == 0) return;
    ((uint8_t *)task->pkt_mem)[task->pkt_mem_size - 1] ^= 0xff;
    spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size, &first);
    spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &second);
    spin_cmd_wait(second);
    spin_cmd_wait(first);
}
