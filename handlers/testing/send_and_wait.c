/* Sends the packet back, sets the flag of the payload's first byte, and waits for the flag of the second byte. If the third byte is
 * not 0 it waits for the send instead. */
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
