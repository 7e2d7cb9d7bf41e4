/* Takes state[flow_id] for a message and page[hpu_gid] for a task. The first bytes of the payload are the message's number, from 1 on. A
 * slot that another one has is an error: 1 for a message, 2 for a task. */
#include <spin.h>

#define PAYLOAD 42
#define FLOWS 8192
#define HPUS 1024

SPIN_HANDLER_DATA uint32_t state[FLOWS];
SPIN_HANDLER_DATA uint32_t page[HPUS];

static uint32_t message(const handler_args_t *args) {
    uint32_t number;
    __builtin_memcpy(&number, (const uint8_t *)args->task->pkt_mem + PAYLOAD, sizeof number);
    return number;
}

static void enter(const handler_args_t *args) {
    if (spin_amo_swap(&page[args->hpu_gid % HPUS], 1)) spin_report_error(2);
    for (uint32_t left = 50; left > 0; left--) __asm__ volatile("");
}

static void leave(const handler_args_t *args) { spin_amo_swap(&page[args->hpu_gid % HPUS], 0); }

void header_handler(handler_args_t *args) {
    enter(args);
    if (spin_amo_swap(&state[args->task->flow_id % FLOWS], message(args))) spin_report_error(1);
    leave(args);
}

void payload_handler(handler_args_t *args) {
    enter(args);
    if (*(volatile uint32_t *)&state[args->task->flow_id % FLOWS] != message(args)) spin_report_error(1);
    leave(args);
}

void completion_handler(handler_args_t *args) {
    enter(args);
    if (spin_amo_swap(&state[args->task->flow_id % FLOWS], 0) != message(args)) spin_report_error(1);
    leave(args);
}
