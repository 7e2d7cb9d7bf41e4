/* Issues commands forever: DMA of 64 KiB of scratchpad to host memory if the context has that much host memory, otherwise sends. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_cmd_t handle;
    for (;;) {
        if (task->host_mem_size >= 65536)
            spin_dma_to_host(spin_host_mem(args), (uint32_t)spin_scratchpad(args), 65536, false, &handle);
        else
            spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &handle);
    }
}
