/* Leaves marks where it may write, and looks for marks of other tasks. The UDP payload's first byte selects the action:
 *   'P' writes marks to the stack, and behind the packet in its windows in L1 and L2
 *   'S' counts the marks it finds. The last four bytes of the reply are the marks in the stack, in the L1 window and in the
 *       L2 window, and the bytes 0xab behind the packet in both windows (each at most 255)
 * Any other packet does nothing, so a long one of 0xab leaves no marks but its own bytes. */
#include <spin.h>

#define MARK 0x5eed5eedu
#define WINDOW 4096u

static __attribute__((noinline)) void plant(uint32_t value, volatile uint32_t *below) {
    volatile uint32_t marks[64];
    for (uint32_t i = 0; i < 64; i++) marks[i] = value + (below == marks);
}

static uint8_t atmost(uint32_t count) { return count > 255 ? 255 : (uint8_t)count; }

static __attribute__((noinline)) uint32_t words(uint32_t from, uint32_t to, uint32_t wanted) {
    uint32_t found = 0;
    for (from = (from + 3) & ~3u; from + 4 <= to; from += 4)
        found += *(volatile uint32_t *)from == wanted;
    return found;
}

static __attribute__((noinline)) uint32_t bytes(uint32_t from, uint32_t to) {
    uint32_t found = 0;
    for (; from < to; from++) found += *(volatile uint8_t *)from == 0xab;
    return found;
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_udp(args, &p) || p.payload_len < 1) return;
    const task_t *task = args->task;
    uint32_t l1 = task->pkt_mem + task->pkt_mem_size, l1_end = task->pkt_mem + WINDOW;
    uint32_t l2 = task->l2_pkt_mem + task->pkt_mem_size, l2_end = task->l2_pkt_mem + WINDOW;
    if (p.payload[0] == 'P') {
        plant(MARK, (volatile uint32_t *)args);
        for (uint32_t at = (l1 + 3) & ~3u; at < l1_end; at += 4) *(volatile uint32_t *)at = MARK;
        for (uint32_t at = (l2 + 3) & ~3u; at < l2_end; at += 4) *(volatile uint32_t *)at = MARK;
    }
    if (p.payload[0] != 'S' || p.payload_len < 5) return;
    /* the stack below the frames of this function and those that it calls */
    uint32_t stack = (uint32_t)args & ~(WINDOW - 1);
    uint8_t *results = (uint8_t *)l1 - 4;
    results[0] = atmost(words(stack, (uint32_t)__builtin_frame_address(0) - 256, MARK));
    results[1] = atmost(words(l1, l1_end, MARK));
    results[2] = atmost(words(l2, l2_end, MARK));
    results[3] = atmost(bytes(l1, l1_end) + bytes(l2, l2_end));
    spin_cmd_t handle;
    spin_send_packet((void *)task->pkt_mem, task->pkt_mem_size, &handle);
}
