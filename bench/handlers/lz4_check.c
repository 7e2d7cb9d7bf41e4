/* Checks that each UDP payload is an LZ4 block, and adds up the decompressed sizes in the scratchpad of the home cluster. */
#include <spin.h>

#include "lz4_check.h"

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint32_t home = task->home_cluster_id % SPIN_MAX_CLUSTERS;
    spin_packet p;
    if (task->scratchpad_size[home] < sizeof(lz4_stats) || !spin_parse_udp(args, &p)) return;
    lz4_stats *stats = (lz4_stats *)task->scratchpad[home];
    uint32_t size = lz4_size_of(p.payload, p.payload_len);
    if (size == LZ4_INVALID) {
        spin_add(&stats->invalid, 1);
        return;
    }
    spin_add(&stats->valid, 1);
    spin_add(&stats->bytes, size);
}
