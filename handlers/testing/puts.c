/* RDMA puts to node 7 on queue pair 9, some of which are refused. Sends the packet back with the statuses in its last six bytes:
 *   0 4000 bytes of handler memory, which count up     1 1469 bytes of host memory
 *   2 bytes past the end of handler memory             3 bytes past the end of host memory
 *   4 no bytes                                         5 more bytes than a task's budget allows */
#include <spin.h>

static uint8_t put(uint32_t low, uint32_t high, uint32_t length) {
    spin_command_word(0, 7);
    spin_command_word(1, 9);
    spin_command_word(2, low);
    spin_command_word(3, high);
    spin_command_word(4, length);
    spin_cmd_t handle = spin_command_issue(SPIN_INFO_SEND);
    spin_cmd_wait(handle);
    return (uint8_t)spin_cmd_status(handle);
}

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint64_t host = spin_host_mem(args);
    uint32_t low = (uint32_t)host, high = (uint32_t)(host >> 32);
    uint8_t *memory = (uint8_t *)task->handler_mem, *packet = (uint8_t *)task->pkt_mem;
    for (uint32_t index = 0; index < 4000; index++) memory[index] = (uint8_t)index;
    uint8_t seen[6];
    seen[0] = put(task->handler_mem, 0, 4000);
    seen[1] = put(low, high, 1469);
    seen[2] = put(task->handler_mem + task->handler_mem_size - 10, 0, 11);
    seen[3] = put(low + task->host_mem_size - 10, high, 11);
    seen[4] = put(task->handler_mem, 0, 0);
    seen[5] = put(low, high, 4u << 20);
    memcpy(packet + task->pkt_mem_size - sizeof seen, seen, sizeof seen);
    spin_cmd_t handle;
    spin_send_packet(packet, task->pkt_mem_size, &handle);
}
