/* Sends copies of each packet; the packet's last byte is their number. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    if (task->pkt_mem_size == 0) return;
    for (uint32_t left = ((uint8_t *)task->pkt_mem)[task->pkt_mem_size - 1]; left > 0; left--) {
        spin_cmd_t handle;
        spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &handle);
    }
}
