/* Copies between a datagram and host memory. The payload holds a host address (8 bytes), and a length (2 bytes) whose upper bit asks for
 * a copy from host memory. Bytes of the copy follow. Answers each copy from host memory with what was read. */
#include <spin.h>

#define FROM_HOST 0x8000u

void payload_handler(handler_args_t *args) {
    spin_packet p;
    spin_cmd_t handle;
    uint64_t host = 0;
    if (!spin_parse_udp_l2(args, &p) || p.payload_len < 10) return;
    for (int i = 7; i >= 0; i--) host = host << 8 | p.payload[i];
    uint32_t word = p.payload[8] | (uint32_t)p.payload[9] << 8, len = word & ~FROM_HOST;
    if (len > p.payload_len - 10) return;
    if (!(word & FROM_HOST)) {
        spin_dma_to_host(host, (uint32_t)(uintptr_t)(p.payload + 10), len, false, &handle);
        return;
    }
    spin_dma_from_host(host, (uint32_t)(uintptr_t)(p.payload + 10), len, false, &handle);
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_udp_write_checksum(&p);
    spin_send_reply(&p);
}
