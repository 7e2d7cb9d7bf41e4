/* Sends the packet back, and then waits: for the flag that the packet's second byte names, which tasks set whose first byte that is,
 * or for the send itself if the third byte is not 0. */
#include <spin.h>

SPIN_HANDLER_DATA volatile uint32_t here[256];

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const uint8_t *packet = (const uint8_t *)task->pkt_mem;
    if (task->pkt_mem_size < SPIN_ETH_HEADER + 31) return;
    spin_cmd_t handle;
    spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size, &handle);
    here[packet[42]] = 1;
    if (packet[44]) {
        while (spin_cmd_status(handle) == SPIN_STATUS_PENDING) {}
    } else {
        while (!here[packet[43]]) {}
    }
    if (spin_cmd_status(handle) != SPIN_STATUS_DONE) __builtin_trap();
}
