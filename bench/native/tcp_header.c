#include "native.h"

#include "../handlers/tcp_header.h"

static void count(tcp_stats *stats, uint8_t flags, const tcp_options *options, uint32_t payload_bytes) {
    add(&stats->segments, 1);
    add(&stats->payload_bytes, payload_bytes);
    for (uint32_t flag = 0; flag < TCP_FLAGS; flag++)
        if (flags >> flag & 1) add(&stats->flags[flag], 1);
    if (options->has_mss) {
        add(&stats->mss, 1);
        add(&stats->mss_sum, options->mss);
    }
    if (options->has_window_scale) {
        add(&stats->window_scale, 1);
        add(&stats->window_scale_sum, options->window_scale);
    }
    if (options->has_sack_permitted) add(&stats->sack_permitted, 1);
    if (options->has_timestamps) {
        add(&stats->timestamps, 1);
        add(&stats->timestamp_sum, options->timestamp);
    }
    if (options->others) add(&stats->other_options, options->others);
}

void tcp_header(struct job *job) {
    spin_packet p;
    if (job->scratchpad_size < sizeof(tcp_stats)) return;
    if (!parse_ipv4(job, &p) || p.protocol != SPIN_IPPROTO_TCP) return;
    tcp_stats *stats = (tcp_stats *)job->scratchpad;
    tcp_options options;
    uint32_t header = tcp_parse(&p, &options);
    if (header == 0)
        add(&stats->malformed, 1);
    else
        count(stats, p.l4[13], &options, p.l4_len - header);
}
