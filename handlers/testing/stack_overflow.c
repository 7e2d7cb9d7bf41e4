/* Recurses until the stack is used up. */
#include <spin.h>

static __attribute__((noinline)) uint32_t dig(volatile uint32_t *above) {
    volatile uint32_t here[16];
    here[0] = *above + 1;
    if (here[0] == 0) return 0; /* never reached: the depth would have to wrap */
    return dig(here) + here[0]; /* the addition prevents a tail call, which would be a loop */
}

void payload_handler(handler_args_t *args) {
    volatile uint32_t depth = args->hpu_id;
    spin_report_error(dig(&depth));
}
