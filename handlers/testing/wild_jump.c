/* Jumps to an address without code. -DTARGET=… selects another address, e.g. in data. */
#include <spin.h>

#ifndef TARGET
#define TARGET 0x2000
#endif

void payload_handler(handler_args_t *args) {
    (void)args;
    ((void (*)(void))TARGET)();
}
