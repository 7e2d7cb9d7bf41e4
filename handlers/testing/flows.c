/* Sends each packet back with its flow id and its home cluster in the first two words of the payload. With -DWAITING, a packet whose
 * third word is not zero first waits for a packet whose fourth word is not zero. */
#include <spin.h>

SPIN_HANDLER_DATA volatile uint32_t released;

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint8_t *frame = (uint8_t *)task->l2_pkt_mem;
    if (task->pkt_mem_size < 58) return;
    uint32_t words[4];
    __builtin_memcpy(words, frame + 42, sizeof words);
#ifdef WAITING
    if (words[3]) released = 1;
    while (words[2] && !released) {}
#endif
    words[0] = task->flow_id;
    words[1] = task->home_cluster_id;
    __builtin_memcpy(frame + 42, words, sizeof words);
    spin_cmd_t handle;
    spin_send_packet(frame, task->pkt_mem_size, &handle);
}
