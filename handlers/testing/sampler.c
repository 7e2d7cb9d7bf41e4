/* Samples: copies the headers of each packet to host memory, behind those of the packets before, with an event. The last eight bytes of
 * host memory have the number of packets, by a HostDirect command. */
#include <spin.h>

#define HEADERS 64u
#define SAMPLES 256u

SPIN_HANDLER_DATA uint32_t packets = 0;

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    if (task->pkt_mem_size < HEADERS) return;
    uint32_t number = __atomic_fetch_add(&packets, 1, __ATOMIC_RELAXED);
    uint64_t host = spin_host_mem(args);
    spin_cmd_t handle;
    spin_dma_to_host(host + number % SAMPLES * HEADERS, task->l2_pkt_mem, HEADERS, true, &handle);
    spin_write_to_host(host + SAMPLES * HEADERS, number + 1, &handle);
}
