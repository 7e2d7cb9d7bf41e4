/* DMA and HostDirect, in and out of bounds. Sends the packet back with the statuses in its last eight bytes:
 *   0 DMA to host at the region's start     1 DMA from host of the same bytes into handler memory
 *   2 HostDirect at the region's end - 8    3 HostDirect that ends one byte past the region
 *   4 DMA to host one byte before it        5 DMA to host of more than the region
 *   6 DMA to host from address 0            7 comparison of the bytes of 0 and 1: 0 equal, 1 not */
#include <spin.h>

#define PROBE 16
SPIN_HANDLER_DATA uint8_t came_back[PROBE] = {1};

static uint8_t finish(spin_cmd_t handle) {
    spin_cmd_wait(handle);
    return (uint8_t)spin_cmd_status(handle);
}

static uint8_t to_host(uint64_t host, uint32_t nic, uint32_t length) {
    spin_cmd_t handle;
    spin_dma_to_host(host, nic, length, false, &handle);
    return finish(handle);
}

static uint8_t from_host(uint64_t host, uint32_t nic, uint32_t length) {
    spin_cmd_t handle;
    spin_dma_from_host(host, nic, length, false, &handle);
    return finish(handle);
}

static uint8_t direct(uint64_t host, uint64_t value) {
    spin_cmd_t handle;
    spin_write_to_host(host, value, &handle);
    return finish(handle);
}

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint64_t host = spin_host_mem(args), end = host + task->host_mem_size;
    uint8_t *packet = (uint8_t *)task->pkt_mem;
    if (task->pkt_mem_size < SPIN_ETH_HEADER + PROBE + 8) return;
    uint8_t *results = packet + task->pkt_mem_size - 8;
    uint8_t seen[8];
    seen[0] = to_host(host, task->pkt_mem, PROBE);
    seen[1] = from_host(host, (uint32_t)came_back, PROBE);
    seen[2] = direct(end - 8, 0x1122334455667788u);
    seen[3] = direct(end - 7, 0);
    seen[4] = to_host(host - 1, task->pkt_mem, PROBE);
    seen[5] = to_host(host, task->handler_mem, task->host_mem_size + 1);
    seen[6] = to_host(host, 0, PROBE);
    seen[7] = memcmp(came_back, packet, PROBE) != 0;
    memcpy(results, seen, sizeof seen);
    spin_cmd_t handle;
    spin_send_packet(packet, task->pkt_mem_size, &handle);
}
