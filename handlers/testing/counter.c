/* State across packets: sends each packet back with the number of packets so far in its last four bytes, in network order. The
 * count starts at the image's 1000. The handler reports an error if .bss does not start as zero, does not keep its value, or if
 * constants cannot be read. */
#include <spin.h>

SPIN_HANDLER_DATA uint32_t packets = 1000;
static uint32_t packets_in_bss;
static const volatile uint32_t constant = 0x04030201;

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint8_t *packet = (uint8_t *)task->pkt_mem;
    if (task->pkt_mem_size < SPIN_ETH_HEADER + 4) return;
    packets++;
    packets_in_bss++;
    if (packets - packets_in_bss != 1000 || constant != 0x04030201) return spin_report_error(packets);
    spin_write_be32(packet + task->pkt_mem_size - 4, packets);
    spin_cmd_t handle;
    spin_send_packet(packet, task->pkt_mem_size, &handle);
}
