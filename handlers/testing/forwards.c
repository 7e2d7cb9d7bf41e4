/* Leaves each packet to the kernel. Before that it changes the byte of the frame whose offset is in the first byte of the payload; 0:
 * none. */
#define SPIN_VERDICTS
#include <spin.h>

spin_verdict_t payload_handler(handler_args_t *args) {
    uint8_t *frame = (uint8_t *)args->task->l2_pkt_mem;
    uint32_t at = frame[42];
    if (at > 0 && at < args->task->pkt_mem_size) frame[at] ^= 1;
    return SPIN_VERDICT_PASS;
}
