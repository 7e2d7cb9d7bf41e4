/* Copies the packet to host memory, and its first bytes back into handler memory. The word behind 42 bytes of headers, big-endian, is
 * the offset in host memory. If the byte behind that word is not zero, the application is notified of the first copy; likewise the
 * next byte for the second copy. */
#include <spin.h>

SPIN_HANDLER_DATA uint8_t back[4];

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    if (task->pkt_mem_size < 48) return;
    const uint8_t *order = (const uint8_t *)task->pkt_mem + 42;
    uint64_t host = spin_host_mem(args) + spin_read_be32(order);
    spin_cmd_t handle;
    spin_dma_to_host(host, task->pkt_mem, task->pkt_mem_size, order[4], &handle);
    spin_dma_from_host(host, (uint32_t)back, sizeof back, order[5], &handle);
}
