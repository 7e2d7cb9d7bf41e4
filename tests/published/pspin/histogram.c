/* Counts the words of all packets of a message by value. */
#include <handler.h>
#include <packets.h>
#include <pspin.h>
#include <util.h>

#define BINS 1024

__handler__ void histogram_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint8_t *payload;
    uint32_t length;
    GET_IP_UDP_PLD(task->pkt_mem, payload, length);
    uint32_t *words = (uint32_t *)payload;
    volatile int32_t *bins = (int32_t *)(task->scratchpad[args->cluster_id]);

    for (uint32_t i = 0; i < length / 4; i++) amo_add(&bins[FAST_MOD(words[i], BINS)], 1);
}

__handler__ void histogram_th(handler_args_t *args) {
    task_t *task = args->task;
    uint64_t host_address = task->host_mem_high;
    spin_cmd_t handle;
    host_address = (host_address << 32) | task->host_mem_low;
    spin_write_to_host(host_address, (uint64_t)1, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, histogram_ph, histogram_th};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
