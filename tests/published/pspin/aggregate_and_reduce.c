/* Sums each packet's words into the task's own registers, by mistake, and places of all packets in the scratchpad. */
#include <handler.h>
#include <packets.h>
#include <pspin.h>

__handler__ void aggregate_and_reduce_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint8_t *payload;
    uint32_t length, sum = 0;
    GET_IP_UDP_PLD(task->pkt_mem, payload, length);
    uint32_t *words = (uint32_t *)payload;
    volatile int32_t *sums = (int32_t *)(task->scratchpad[args->cluster_id]);

    for (uint32_t i = 0; i < length / sizeof(uint32_t); i++) {
        sum += words[i];
        amo_add(&sums[i], words[i]);
    }
    amo_add(&(task->scratchpad[args->cluster_id]), sum);
}

__handler__ void aggregate_and_reduce_th(handler_args_t *args) {
    task_t *task = args->task;
    uint64_t host_address = task->host_mem_high;
    host_address = (host_address << 32) | task->host_mem_low;
    spin_write_to_host(host_address, (uint64_t)(uint32_t)task->scratchpad[args->cluster_id], false);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, aggregate_and_reduce_ph, aggregate_and_reduce_th};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
