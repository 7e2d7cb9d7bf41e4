/* Copies host memory over each packet, and sends it. */
#include <handler.h>
#include <packets.h>

__handler__ void copy_from_host_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint64_t host_address = task->host_mem_high;
    spin_cmd_t dma, put;

    host_address = (host_address << 32) | task->host_mem_low;
    spin_dma_from_host(host_address, (uint32_t)task->pkt_mem, task->pkt_mem_size, 1, &dma);
    spin_cmd_wait(dma);
    spin_send_packet(task->pkt_mem, task->pkt_mem_size, &put);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, copy_from_host_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
