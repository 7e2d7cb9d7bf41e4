/* Does nothing. */
#include <handler.h>

__handler__ void empty_handler(handler_args_t *args) { return; }

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, empty_handler, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
