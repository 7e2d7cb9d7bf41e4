/* Sends each packet back as it came: from its own sender, for whom it claims to be. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_cmd_t handle;
    spin_send_packet((const void *)task->l2_pkt_mem, task->pkt_mem_size, &handle);
}
