/* Copies packets that it reads, depending on their contents: the payload's first byte selects the case, the second a number. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const volatile uint8_t *payload = (const volatile uint8_t *)task->pkt_mem + SPIN_PLAIN_UDP_HEADERS;
    uint64_t host = spin_host_mem(args);
    uint32_t count = payload[1];
    spin_cmd_t handle, first;
    switch (payload[0]) {
    case 'l': /* one of 64 bytes, one of a length from the packet, which may exceed the packet */
        spin_dma_to_host(host, task->pkt_mem, 64, false, &handle);
        spin_dma_to_host(host + 64, task->pkt_mem, count * 8, false, &handle);
        break;
    case 'n': /* `count` copies whose handles are not used */
        for (uint32_t at = 0; at < count; at++) spin_dma_to_host(host, task->pkt_mem, 42, false, &handle);
        break;
    case 'h': /* a copy whose handle goes to the host */
        spin_dma_to_host(host, task->pkt_mem, 42, false, &first);
        spin_write_to_host(host + 4096, first, &handle);
        break;
    case 's': /* status of a refused copy after `count` other copies */
        spin_dma_to_host(0, task->pkt_mem, 42, false, &first);
        for (uint32_t at = 0; at < count; at++) spin_dma_to_host(host, task->pkt_mem, 42, false, &handle);
        spin_write_to_host(host + 4096, 0x100 + spin_cmd_status(first), &handle);
        break;
    }
}
