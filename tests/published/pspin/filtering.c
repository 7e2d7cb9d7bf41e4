/* Looks up the first 8 bytes of each packet in a table in handler memory, and sends the packet with what it found in their place. */
#include <handler.h>
#include <packets.h>
#include <util.h>

#ifndef ENTRIES
#define ENTRIES 131072
#endif

/* Bob Jenkins' one-at-a-time hash. */
static inline uint32_t jenkins(const uint8_t *key) {
    uint32_t hash = 0;
    for (int i = 0; i < 8; i++) {
        hash += key[i];
        hash += hash << 10;
        hash ^= hash >> 6;
    }
    hash += hash << 3;
    hash ^= hash >> 11;
    hash += hash << 15;
    return hash;
}

__handler__ void filtering_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint8_t *pkt = (uint8_t *)task->pkt_mem;
    volatile uint32_t *table = (uint32_t *)task->handler_mem;
    uint32_t place = FAST_MOD(jenkins(pkt), ENTRIES);
    spin_cmd_t put;

    ((uint32_t *)pkt)[0] = table[place];
    ((uint32_t *)pkt)[1] = place;
    spin_send_packet(task->pkt_mem, task->pkt_mem_size, &put);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, filtering_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
