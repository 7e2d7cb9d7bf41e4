/* Adds 1 atomically to the first word of a scratchpad, and sends the packet back with the sum in the payload's second byte. The UDP
 * payload's first byte selects the cluster: '0' the one on which it runs, '1' the next one. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp(args, &p) || p.payload_len < 2) return;
    const task_t *task = args->task;
    uint32_t cluster = (args->cluster_id + (p.payload[0] - '0')) % 4;
    uint32_t *word = (uint32_t *)task->scratchpad[cluster];
    p.payload[1] = (uint8_t)(__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST) + 1);
    spin_cmd_t handle;
    spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &handle);
}
