/* Copies packets that it never reads, to the host and back. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint64_t host = spin_host_mem(args);
    spin_cmd_t handle;
    spin_dma_to_host(host, task->pkt_mem, SPIN_MIN(task->pkt_mem_size, 2048u), false, &handle);
    spin_dma_from_host(host + 2048, task->pkt_mem, 16, false, &handle);
}
