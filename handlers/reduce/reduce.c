/* Adds up messages element by element: the i-th 32-bit integer of each UDP datagram is added to the i-th element of a vector. The
 * vector goes to host memory after each message.
 *
 * The vector is in the scratchpad of the message's home cluster. Each cluster therefore has one, and a place for it in host
 * memory; the whole sum is that of the clusters' vectors. */
#include <spin.h>

/* Number of elements of the vector. */
#define ELEMENTS 512u
#define VECTOR_BYTES (ELEMENTS * 4)

static uint32_t home(const task_t *task) { return task->home_cluster_id % SPIN_MAX_CLUSTERS; }

/* The home cluster's vector, or NULL if the scratchpad is too small. */
static uint32_t *vector_of(const task_t *task) {
    return task->scratchpad_size[home(task)] < VECTOR_BYTES ? NULL : (uint32_t *)task->scratchpad[home(task)];
}

static void add(uint32_t *restrict vector, const uint8_t *restrict data, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) spin_add(&vector[i], spin_load32(data + 4 * i));
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    uint32_t *vector = vector_of(args->task);
    if (!vector || !spin_parse_udp(args, &p)) return;
    add(vector, p.payload, SPIN_MIN(p.payload_len / 4, ELEMENTS));
}

void completion_handler(handler_args_t *args) {
    uint32_t *vector = vector_of(args->task);
    uint64_t host = spin_host_mem(args) + home(args->task) * VECTOR_BYTES;
    spin_cmd_t handle;
    if (vector) spin_dma_to_host(host, (uint32_t)vector, VECTOR_BYTES, true, &handle);
}
