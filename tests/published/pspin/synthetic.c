/* Takes as many cycles as the first word of the payload says. */
#include <handler.h>
#include <packets.h>
#include <pspin.h>

__handler__ void synthetic_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint32_t *words = (uint32_t *)((uint8_t *)task->pkt_mem + sizeof(pkt_hdr_t));
    rt_time_wait_cycles(words[0] % 1000);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, synthetic_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
