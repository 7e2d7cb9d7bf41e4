/* Scatters a message over host memory in blocks at a fixed stride.
 *
 * A UDP datagram begins with the offset of its data in the message, 32 bits in network order. The first two words of handler
 * memory are block size and stride in bytes. While they are zero, handlers fetch them from the last two words of host memory,
 * where the application writes them. */
#include <spin.h>

#define OFFSET_BYTES 4u

/* Layout of the message in host memory, specified by the receiver. */
typedef struct layout {
    uint32_t block;
    uint32_t stride;
} layout;

static inline bool is_known(const layout *to) { return to->block != 0 && to->stride != 0; }

/* The layout in handler memory, or NULL if handler memory is too small. */
static inline layout *kept(const task_t *task) {
    return task->handler_mem_size < sizeof(layout) ? NULL : (layout *)task->handler_mem;
}

SPIN_INLINE void scatter(const handler_args_t *args, const spin_packet *p, const layout to) {
    if (p->payload_len < OFFSET_BYTES) return;
    uint32_t offset = spin_read_be32(p->payload), left = p->payload_len - OFFSET_BYTES;
    uint32_t from = (uint32_t)p->payload + OFFSET_BYTES, within = offset % to.block;
    uint64_t block = spin_host_mem(args) + (uint64_t)(offset / to.block) * to.stride;
    while (left > 0) {
        uint32_t length = SPIN_MIN(to.block - within, left);
        spin_cmd_t handle;
        spin_dma_to_host(block + within, from, length, false, &handle);
        left -= length;
        from += length;
        block += to.stride;
        within = 0;
    }
}

/* Fetches the layout from the end of host memory. Returns false if there is none yet. Concurrent handlers write the same bytes; a
 * handler that sees only one of the two words fetches them too. */
static bool fetch(const handler_args_t *args, layout *to) {
    if (args->task->host_mem_size < sizeof *to) return false;
    spin_cmd_t handle;
    uint64_t end = spin_host_mem(args) + args->task->host_mem_size;
    spin_dma_from_host(end - sizeof *to, (uint32_t)to, sizeof *to, false, &handle);
    spin_cmd_wait(handle);
    return is_known(to);
}

/* Handles rare cases: the layout is not fetched yet, or the datagram has tags, options or IPv6. */
SPIN_APART void scatter_any(const handler_args_t *args) {
    spin_packet p;
    layout *to = kept(args->task);
    if (!to || !spin_parse_udp(args, &p)) return;
    if (is_known(to) || fetch(args, to)) scatter(args, &p, *to);
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    const layout *to = kept(args->task);
    if (!to || !is_known(to) || !spin_parse_plain_udp(args, &p)) return scatter_any(args);
    scatter(args, &p, *to);
}
