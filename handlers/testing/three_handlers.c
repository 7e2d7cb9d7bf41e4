/* Header, payload and completion handlers each append a record of eight bytes to host memory, which shows their order:
 * { u8 'H' | 'P' | 'C', u8 HPU, u16 queue of the message, u32 last four bytes of the packet in memory order }. */
#include <spin.h>

SPIN_HANDLER_DATA uint32_t records;

static void mark(const handler_args_t *args, char who) {
    const task_t *task = args->task;
    uint32_t at = __atomic_fetch_add(&records, 1, __ATOMIC_RELAXED) * 8;
    if (at + 8 > task->host_mem_size || task->pkt_mem_size < 4) return;
    uint32_t head = (uint8_t)who | (args->hpu_gid & 0xff) << 8 | task->flow_id << 16;
    uint32_t tail = spin_load32((uint8_t *)task->pkt_mem + task->pkt_mem_size - 4);
    spin_cmd_t handle;
    spin_write_to_host(spin_host_mem(args) + at, (uint64_t)tail << 32 | head, &handle);
}

void header_handler(handler_args_t *args) { mark(args, 'H'); }
void payload_handler(handler_args_t *args) { mark(args, 'P'); }
void completion_handler(handler_args_t *args) { mark(args, 'C'); }
