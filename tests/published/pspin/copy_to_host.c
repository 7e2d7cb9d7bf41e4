/* Copies each packet to host memory. */
#include <handler.h>
#include <packets.h>

__handler__ void copy_to_host_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint64_t host_address = task->host_mem_high;
    spin_cmd_t dma;

    host_address = (host_address << 32) | task->host_mem_low;
    spin_dma_to_host(host_address, (uint32_t)task->pkt_mem, task->pkt_mem_size, 1, &dma);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, copy_to_host_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
