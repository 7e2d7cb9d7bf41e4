/* Sends the packet back with another length and returns a verdict, as the packet says. Behind 42 bytes of headers, the first byte is the
 * length's distance from the packet's length; 0 for no send. The second byte is the verdict. */
#define SPIN_VERDICTS
#include <spin.h>

spin_verdict_t payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    if (task->pkt_mem_size < 44) return SPIN_VERDICT_SUCCESS;
    const uint8_t *order = (const uint8_t *)task->l2_pkt_mem + 42;
    spin_cmd_t handle;
    if (order[0]) spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size - (order[0] - 1u), &handle);
    return (spin_verdict_t)order[1];
}
