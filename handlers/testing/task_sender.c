/* Sends 60 bytes that contain the task registers: through their addresses in the driver page, through args->task, and as the end of
 * 60 bytes of the stack. The reply's last three bytes are the statuses of these commands. 4 more bytes of stack below may be sent
 * too, so one frame leaves before the reply. */
#include <spin.h>

static uint8_t sent(uint32_t address) {
    spin_cmd_t handle;
    spin_send_packet((void *)address, 60, &handle);
    spin_cmd_wait(handle);
    return (uint8_t)spin_cmd_status(handle);
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp(args, &p) || p.payload_len < 3) return;
    const task_t *task = args->task;
    uint8_t *results = (uint8_t *)task->pkt_mem + task->pkt_mem_size - 3;
    results[0] = sent(SPIN_DRIVER_BASE + 8);
    results[1] = sent((uint32_t)task);
    results[2] = sent((uint32_t)task - 56);
    sent((uint32_t)task - 60);
    spin_cmd_t handle;
    spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &handle);
}
