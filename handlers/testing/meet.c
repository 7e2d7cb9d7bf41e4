/* Tasks that wait for each other. The packet's first payload byte is the task's own flag, the second the flag for which it waits.
 * The task sets its flag, polls the other, then sends the packet back, with its own cluster and its message's home in the next two
 * bytes. */
#include <spin.h>

SPIN_HANDLER_DATA volatile uint32_t here[256];

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const uint8_t *packet = (const uint8_t *)task->pkt_mem;
    if (task->pkt_mem_size < SPIN_ETH_HEADER + 30) return;
    here[packet[42]] = 1;
    while (!here[packet[43]]) {}
    uint8_t *frame = (uint8_t *)task->l2_pkt_mem;
    frame[44] = args->cluster_id;
    frame[45] = task->home_cluster_id;
    spin_cmd_t handle;
    spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size, &handle);
}
