/* Reads address 0, which nothing is mapped at. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    (void)args;
    (void)*(volatile uint32_t *)0;
}
