/* Sends the packet as it is shown; with PASS leaves it to the kernel, by a verdict. */
#include <handler.h>

#ifdef PASS
static int mirror(handler_args_t *args) {
    (void)args;
    return 1;
}
#else
static void mirror(handler_args_t *args) {
    task_t *task = args->task;
    spin_cmd_t handle;
#ifdef L2
    spin_send_packet(task->l2_pkt_mem, task->pkt_mem_size, &handle);
#else
    spin_send_packet(task->pkt_mem, task->pkt_mem_size, &handle);
#endif
}
#endif

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = (handler_fn)(void *)mirror;
    *th = NULL;
    *handler_mem = NULL;
}
