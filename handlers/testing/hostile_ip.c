/* Sends its packet back, or a forged one, in PsPIN's view: from the IP header on. The payload begins with an order. With -DHEADER a
 * header handler replaces the sender first. */
#include <spin.h>

enum { SOURCE = 12, DESTINATION = 16, PORTS = 20, PAYLOAD = 28, VICTIM = 99 };
enum forgery { NOTHING, SOURCE_IP, SOURCE_PORT, TO_IP, TO_PORT, VERSION };

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const uint8_t *order = (const uint8_t *)task->l2_pkt_mem + PAYLOAD;
    uint8_t *packet = (uint8_t *)(order[1] ? task->pkt_mem : task->l2_pkt_mem);
    uint32_t *addresses = (uint32_t *)(packet + SOURCE), address = addresses[0];
    uint16_t *ports = (uint16_t *)(packet + PORTS), port = ports[0];
    addresses[0] = addresses[1], addresses[1] = address;
    ports[0] = ports[1], ports[1] = port;
    switch (order[0]) {
    case SOURCE_IP: packet[SOURCE] = VICTIM; break;
    case SOURCE_PORT: ports[0] = 22; break;
    case TO_IP: packet[DESTINATION] = VICTIM; break;
    case TO_PORT: ports[1] ^= 1; break;
    case VERSION: packet[0] = 0x56; break;
    default: break;
    }
    spin_cmd_t handle;
    spin_send_packet(packet, task->pkt_mem_size, &handle);
}

#ifdef HEADER
void header_handler(handler_args_t *args) { ((uint8_t *)args->task->l2_pkt_mem)[SOURCE] = VICTIM; }
#endif
