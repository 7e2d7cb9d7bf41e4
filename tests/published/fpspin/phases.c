/* Handlers, and functions whose names have parts of handlers' names. Each counts its calls in a counter of its own; the payload handler
 * sends the packet. FIRST: its name is the first of those with its part, for images in which only names say what is a handler.
 * IDLE: init_handlers names no payload handler. */
#include <handler.h>
#include <packets.h>
#include <spin_host.h>

enum { HEADER = 1, PAYLOAD, COMPLETION, PHASE, PART };

#ifdef FIRST
#define PAYLOAD_HANDLER a_ph
#else
#define PAYLOAD_HANDLER work_ph
#endif

static void count(int what) { push_counter(&__host_data.counters[what], 1); }

/* Not a handler. */
__handler__ uint32_t calc_phase(handler_args_t *args) {
    count(PHASE);
    return args->task->flow_id;
}

/* Not the first name with that part. */
__handler__ void work_phases(handler_args_t *args) {
    (void)args;
    count(PART);
}

__handler__ void work_hh(handler_args_t *args) {
    (void)args;
    count(HEADER);
}

__handler__ void PAYLOAD_HANDLER(handler_args_t *args) {
    task_t *task = args->task;
    spin_cmd_t cmd;
    count(PAYLOAD);
    if (task->pkt_mem_size > 100) calc_phase(args);
    spin_send_packet(task->pkt_mem, task->pkt_mem_size, &cmd);
}

__handler__ void work_th(handler_args_t *args) {
    (void)args;
    count(COMPLETION);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
#ifdef IDLE
    volatile handler_fn handlers[] = {work_hh, NULL, work_th};
#else
    volatile handler_fn handlers[] = {work_hh, PAYLOAD_HANDLER, work_th};
#endif
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
