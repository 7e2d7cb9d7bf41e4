/* Counts packets in handler memory: all of them in the first word, by atomics, and those of each unit in a word of its own. Answers with
 * unit, number of units, hpu_gid and flow_id in the first words of the payload, and the unit's index ranges in the next. */
#include <spin.h>

#define PAYLOAD 42
#define UNITS 64

SPIN_HANDLER_DATA uint32_t all;
SPIN_HANDLER_DATA uint32_t by_unit[UNITS];

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint8_t *frame = (uint8_t *)task->l2_pkt_mem;
    spin_amo_add(&all, 1);
    spin_amo_add(&by_unit[spin_unit(args) % UNITS], 1);
    uint32_t words[] = {spin_unit(args), spin_units(args), args->hpu_gid, task->flow_id, spin_unit_hpus(args), spin_unit_flows(args)};
    if (task->pkt_mem_size < PAYLOAD + sizeof words) return;
    __builtin_memcpy(frame + PAYLOAD, words, sizeof words);
    spin_cmd_t handle;
    spin_send_packet(frame, task->pkt_mem_size, &handle);
}
