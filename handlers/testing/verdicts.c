/* Returns the verdict in the packet. Behind 42 bytes of headers, the first byte is the header handler's, the second the payload
 * handler's and the fourth the completion handler's; the third says whether the packet is the last one. The completion handler sends
 * a frame to show that it ran. */
#define SPIN_VERDICTS
#define SPIN_VERDICTS_OPTIONAL
#include <spin.h>

static spin_verdict_t asked(const handler_args_t *args, uint32_t at) {
    const task_t *task = args->task;
    return task->pkt_mem_size <= at ? SPIN_VERDICT_SUCCESS : (spin_verdict_t)((const uint8_t *)task->pkt_mem)[at];
}

spin_verdict_t header_handler(handler_args_t *args) { return asked(args, 42); }
spin_verdict_t payload_handler(handler_args_t *args) { return asked(args, 43); }
spin_verdict_t completion_handler(handler_args_t *args) {
    spin_cmd_t handle;
    spin_send_packet((void *)args->task->l2_pkt_mem, args->task->pkt_mem_size, &handle);
    return asked(args, 45);
}
