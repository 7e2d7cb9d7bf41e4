/* Spins for the number of rounds in the packet: little-endian in the four bytes behind 42 bytes of headers. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const uint8_t *packet = (const uint8_t *)task->pkt_mem;
    if (task->pkt_mem_size < 46) return;
    uint32_t rounds = packet[42] | (uint32_t)packet[43] << 8 | (uint32_t)packet[44] << 16 | (uint32_t)packet[45] << 24;
    for (; rounds; rounds--) __asm__ volatile("");
}
