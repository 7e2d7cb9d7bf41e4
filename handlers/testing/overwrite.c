/* Sends any frame: handler memory begins with its length, then the frame. It may not be longer than the packet. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const uint32_t *order = (const uint32_t *)task->handler_mem;
    const uint8_t *from = (const uint8_t *)(order + 1);
    volatile uint8_t *to = (uint8_t *)task->l2_pkt_mem;
    uint32_t length = *order;
    if (length > task->pkt_mem_size) return;
    for (uint32_t i = 0; i < length; i++) to[i] = from[i];
    spin_cmd_t handle;
    spin_send_packet((const void *)task->l2_pkt_mem, length, &handle);
}
