/* Handlers that run the programs of packets on the state in handler memory. */
#include <spin.h>

#include "program.h"

void header_handler(handler_args_t *args) { program_open((uint8_t *)args->task->handler_mem, args->task->handler_mem_size); }

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp(args, &p)) return;
    program_run((uint8_t *)args->task->handler_mem, args->task->handler_mem_size, p.payload, p.payload_len);
}

void completion_handler(handler_args_t *args) { program_close((uint8_t *)args->task->handler_mem, args->task->handler_mem_size); }
