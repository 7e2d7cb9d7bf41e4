/* Reads address 0, where nothing is mapped, in a function of the SDK that is inlined. A function of its own calls it. */
#include <spin.h>

static inline uint16_t first_port(const void *at) {
    return spin_read_be16(at); /* the own line */
}

void payload_handler(handler_args_t *args) {
    (void)args;
    const void *volatile nowhere = 0;
    spin_report_error(first_port(nowhere)); /* the report */
}
