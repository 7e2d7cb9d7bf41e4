/* Reads address 0, where nothing is mapped. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    (void)args;
    (void)*(volatile uint32_t *)0;
}
