/* Sends each packet back; has header, payload and completion handlers. */
#include <spin.h>

void header_handler(handler_args_t *args) { (void)args; }

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_cmd_t handle;
    spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size, &handle);
}

void completion_handler(handler_args_t *args) { (void)args; }
