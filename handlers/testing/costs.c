/* Prints the number of instructions of the SDK's functions, for a UDP datagram over IPv4: the handler of REFERENCE.md. */
#include <spin.h>

#define LINE(name, instructions) (spin_puts(name " "), spin_put_dec(instructions), spin_putc('\n'))

/* Prints the instructions of `what` without those of the measurement. The barriers keep all effects of `what` between the two
 * readings. */
#define COST(what)                                                                                                     \
    do {                                                                                                               \
        __asm__ volatile("" ::: "memory");                                                                             \
        uint32_t start = spin_cycles();                                                                                \
        __asm__ volatile("" ::: "memory");                                                                             \
        what;                                                                                                          \
        __asm__ volatile("" ::: "memory");                                                                             \
        uint32_t end = spin_cycles();                                                                                  \
        LINE(#what, end - start - 1);                                                                                  \
    } while (0)

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    volatile uint32_t sink;
    bool done;
    spin_packet p;
    spin_cmd_t handle;
    uint64_t host = spin_host_mem(args);
    uint32_t *word = (uint32_t *)task->handler_mem;
    if (task->handler_mem_size < 8 || task->host_mem_size < 2048) return;
    COST();
    COST(sink = spin_parse_ipv4(args, &p));
    COST(sink = spin_parse_udp_l2(args, &p));
    COST(sink = spin_parse_plain_udp_l2(args, &p));
    if (!spin_parse_udp_l2(args, &p)) return;
    COST(sink = spin_is_unicast(&p));
    COST(spin_swap_addresses(&p));
    COST(spin_swap_ports(p.l4));
    COST(sink = spin_reply_len(&p));
    COST(spin_udp_write_checksum(&p));
    COST(sink = spin_checksum_bytes(0, p.payload, p.payload_len));
    COST(sink = spin_checksum_update(spin_load16(p.l4 + 6), 1, 2));
    COST(sink = spin_load32(p.payload + 1));
    COST(sink = spin_read_be16(p.payload));
    COST(sink = spin_read_be32(p.payload));
    COST(sink = spin_amo_add(word, 1));
    COST(spin_add(word, 1));
    COST(spin_lock(word + 1));
    COST(spin_unlock(word + 1));
    COST(spin_write_to_host(host, 1, &handle));
    COST(spin_write_bytes_to_host(host, p.payload, 32, &handle));
    COST(spin_dma_to_host(host, (uint32_t)p.payload, p.payload_len, false, &handle));
    COST(spin_cmd_wait(handle));
    COST(spin_cmd_test(handle, &done));
    COST(sink = spin_cmd_status(handle));
    COST(spin_putc('\n'));
    COST(spin_send_packet(p.frame, p.frame_len, &handle));
    COST(memcpy((void *)task->pkt_mem, (void *)task->l2_pkt_mem, task->pkt_mem_size));
    (void)sink;
}
