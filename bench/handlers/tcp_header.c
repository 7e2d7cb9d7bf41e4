/* Counts TCP segments over IPv4 by flag and by option, in the scratchpad of the message's home cluster. */
#include <spin.h>

#include "tcp_header.h"

static void count(tcp_stats *stats, uint8_t flags, const tcp_options *options, uint32_t payload_bytes) {
    spin_add(&stats->segments, 1);
    spin_add(&stats->payload_bytes, payload_bytes);
    for (uint32_t flag = 0; flag < TCP_FLAGS; flag++)
        if (flags >> flag & 1) spin_add(&stats->flags[flag], 1);
    if (options->has_mss) {
        spin_add(&stats->mss, 1);
        spin_add(&stats->mss_sum, options->mss);
    }
    if (options->has_window_scale) {
        spin_add(&stats->window_scale, 1);
        spin_add(&stats->window_scale_sum, options->window_scale);
    }
    if (options->has_sack_permitted) spin_add(&stats->sack_permitted, 1);
    if (options->has_timestamps) {
        spin_add(&stats->timestamps, 1);
        spin_add(&stats->timestamp_sum, options->timestamp);
    }
    if (options->others) spin_add(&stats->other_options, options->others);
}

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint32_t home = task->home_cluster_id % SPIN_MAX_CLUSTERS;
    spin_packet p;
    if (task->scratchpad_size[home] < sizeof(tcp_stats)) return;
    if (!spin_parse_ipv4(args, &p) || p.protocol != SPIN_IPPROTO_TCP) return;
    tcp_stats *stats = (tcp_stats *)task->scratchpad[home];
    tcp_options options;
    uint32_t header = tcp_parse(&p, &options);
    if (header == 0)
        spin_add(&stats->malformed, 1);
    else
        count(stats, p.l4[13], &options, p.l4_len - header);
}
