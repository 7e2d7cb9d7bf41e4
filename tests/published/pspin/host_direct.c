/* Writes a word to the host for each packet. */
#include <handler.h>
#include <packets.h>

__handler__ void host_direct_ph(handler_args_t *args) {
    spin_cmd_t handle;
    spin_write_to_host(0xdeadbeef, 0xcafebebe, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, host_direct_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
