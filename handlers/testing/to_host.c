/* Copies each packet to host memory, to a place of its message: measures the cost of a command that copies. */
#include <spin.h>

/* Bytes per cluster: messages of different threads have the same flow ids. Clusters are far apart because a core prefetches the
 * next lines, and would take them from the other core. */
#define CLUSTER 65536u
#define PLACES 16u
#define PLACE 2048u

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint64_t place = spin_host_mem(args) + args->cluster_id * CLUSTER + task->flow_id % PLACES * PLACE;
    spin_cmd_t handle;
    spin_dma_to_host(place, task->pkt_mem, SPIN_MIN(task->pkt_mem_size, PLACE), false, &handle);
}
