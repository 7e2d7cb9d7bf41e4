/* Never returns. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    (void)args;
    for (;;) __asm__ volatile("");
}
