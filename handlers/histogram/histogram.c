/* Counts the 32-bit integers of UDP datagrams by value, from 0 to 1024; other values are not counted. The counts go to host
 * memory after each message.
 *
 * The bins are in the scratchpad of the message's home cluster. Each cluster therefore has its own bins, and a place for them in
 * host memory; the whole histogram is the sum over the clusters. */
#include <spin.h>

#define BINS 1025u
#define HISTOGRAM_BYTES (BINS * 4)

static uint32_t home(const task_t *task) { return task->home_cluster_id % SPIN_MAX_CLUSTERS; }

/* The home cluster's bins, or NULL if the scratchpad is too small. */
static uint32_t *bins_of(const task_t *task) {
    return task->scratchpad_size[home(task)] < HISTOGRAM_BYTES ? NULL : (uint32_t *)task->scratchpad[home(task)];
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    uint32_t *bins = bins_of(args->task);
    if (!bins || !spin_parse_udp(args, &p)) return;
    uint32_t count = p.payload_len / 4;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t value = spin_load32(p.payload + 4 * i);
        if (value < BINS) spin_add(&bins[value], 1);
    }
}

void completion_handler(handler_args_t *args) {
    uint32_t *bins = bins_of(args->task);
    uint64_t host = spin_host_mem(args) + home(args->task) * HISTOGRAM_BYTES;
    spin_cmd_t handle;
    if (bins) spin_dma_to_host(host, (uint32_t)bins, HISTOGRAM_BYTES, true, &handle);
}
