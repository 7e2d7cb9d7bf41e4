/* Sums the 32-bit integers of a message's UDP datagrams and writes the sum to the start of host memory.
 *
 * Each message's sum is a word of its home cluster's scratchpad, at the index of its queue. All tasks of the message find it
 * there, on whatever cluster they run. A packet is summed in a register and added once. */
#include <spin.h>

/* The message's sum, or NULL if the scratchpad is too small. */
static uint32_t *sum_of(const task_t *task) {
    uint32_t home = task->home_cluster_id % SPIN_MAX_CLUSTERS;
    uint32_t sums = task->scratchpad_size[home] / sizeof(uint32_t);
    return task->flow_id < sums ? (uint32_t *)task->scratchpad[home] + task->flow_id : NULL;
}

void header_handler(handler_args_t *args) {
    uint32_t *sum = sum_of(args->task);
    if (sum) *sum = 0;
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    uint32_t *message = sum_of(args->task);
    if (!message || !spin_parse_udp(args, &p)) return;
    uint32_t sum = 0;
    for (uint32_t at = 0; at + 4 <= p.payload_len; at += 4) sum += spin_load32(p.payload + at);
    spin_add(message, sum);
}

void completion_handler(handler_args_t *args) {
    uint32_t *sum = sum_of(args->task);
    spin_cmd_t handle;
    if (sum) spin_write_to_host(spin_host_mem(args), *sum, &handle);
}
