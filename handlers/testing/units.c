/* Counts packets in handler memory: all of them in the first word, by atomics, and those of each unit in a word of its own. Answers with
 * unit, number of units, hpu_gid and flow_id in the first words of the payload, and the unit's index ranges in the next. */
#include <spin.h>

#define UNITS 64

SPIN_HANDLER_DATA uint32_t all;
SPIN_HANDLER_DATA uint32_t by_unit[UNITS];

void payload_handler(handler_args_t *args) {
    spin_packet p;
    spin_amo_add(&all, 1);
    spin_amo_add(&by_unit[spin_unit(args) % UNITS], 1);
    uint32_t words[] = {spin_unit(args), spin_units(args), args->hpu_gid, args->task->flow_id, spin_unit_hpus(args), spin_unit_flows(args)};
    if (!spin_parse_plain_udp_l2(args, &p) || p.payload_len < sizeof words) return;
    __builtin_memcpy(p.payload, words, sizeof words);
    /* No checksum. */
    p.l4[6] = p.l4[7] = 0;
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_send_reply(&p);
}
