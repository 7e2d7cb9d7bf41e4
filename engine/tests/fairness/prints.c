/* Prints some lines, and copies the packet to host memory, of which the host is told: so the prints can be counted. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    for (uint32_t line = 0; line < 4; line++) spin_puts("a line that a hostile handler prints\n");
    spin_cmd_t handle;
    spin_dma_to_host(spin_host_mem(args), task->pkt_mem, 4, true, &handle);
}
