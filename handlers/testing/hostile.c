/* Sends its packet back, or a forged frame. The payload begins with an order. With -DHEADER a header handler may overwrite the packet
 * first; with -DCOMPLETION the completion handler sends. */
#include <spin.h>

enum { FRAME = 42, VICTIM = 99, HOST_FRAME = 64, PAGE = 4096 };

enum forgery {
    NOTHING, SOURCE_IP, SOURCE_MAC, ARP, VLAN, MULTICAST, MULTICAST_SOURCE, SOURCE_PORT, FRAGMENT, OFFSET, TO_PORT, TO_IP, TO_MAC,
    PROTOCOL, LENGTH, OPTIONS, CUT, IPV6, PUT, AS_SENT
};
enum place { L2, L1, HANDLER_MEM, SCRATCHPAD, HOST };

/* Order in a packet. `own` and `other` are flags: the task sets one, and waits for the other unless it is 0. */
typedef struct order {
    uint8_t forgery, place, overwrite, wait, own, other;
} order_t;

SPIN_HANDLER_DATA volatile uint32_t flags[256];

static order_t order_of(const task_t *task) {
    order_t order;
    __builtin_memcpy(&order, (const uint8_t *)task->l2_pkt_mem + FRAME, sizeof order);
    return order;
}

/* Exchanges the addresses and ports of sender and receiver. */
static void turn(uint8_t *frame) {
    static const uint8_t pairs[][3] = {{0, 6, 6}, {26, 30, 4}, {34, 36, 2}};
    for (uint32_t pair = 0; pair < 3; pair++) {
        for (uint32_t at = 0; at < pairs[pair][2]; at++) {
            uint8_t *first = frame + pairs[pair][0] + at, *second = frame + pairs[pair][1] + at, byte = *first;
            *first = *second;
            *second = byte;
        }
    }
}

/* Forges a reply. Returns its new length. */
static uint32_t forge(uint8_t *frame, uint32_t length, uint8_t forgery) {
    switch (forgery) {
    case SOURCE_IP: frame[29] = VICTIM; break;
    case SOURCE_MAC: frame[11] = VICTIM; break;
    case ARP: frame[13] = 6; break;
    case VLAN:
        for (uint32_t at = length - 1; at >= 16; at--) frame[at] = frame[at - 4];
        frame[12] = 0x81, frame[13] = 0, frame[14] = 0, frame[15] = 7;
        break;
    case MULTICAST: frame[0] = 1, frame[30] = 224; break;
    case MULTICAST_SOURCE: frame[26] = 224; break;
    case SOURCE_PORT: frame[34] = 0, frame[35] = 22; break;
    case FRAGMENT: frame[20] |= 0x20; break;
    case OFFSET: frame[21] = 1; break;
    case TO_PORT: frame[37] ^= 1; break;
    case TO_IP: frame[33] = VICTIM; break;
    case TO_MAC: frame[5] = VICTIM; break;
    case PROTOCOL: frame[23] = 6; break;
    case LENGTH: frame[16] = 5; break;
    case OPTIONS: frame[14] = 0x4f; break;
    case CUT: return 40;
    case IPV6: frame[12] = 0x86, frame[13] = 0xdd; break;
    default: break;
    }
    return length;
}

static spin_cmd_t send(uint64_t address, uint32_t length, uint32_t queue_pair) {
    spin_command_word(0, 0);
    spin_command_word(1, queue_pair);
    spin_command_word(2, (uint32_t)address);
    spin_command_word(3, (uint32_t)(address >> 32));
    spin_command_word(4, length);
    return spin_command_issue(SPIN_INFO_SEND);
}

static void act(const handler_args_t *args) {
    const task_t *task = args->task;
    const order_t order = order_of(task);
    uint8_t *const packet = (uint8_t *)task->l2_pkt_mem;
    uint8_t *frame = packet;
    uint32_t length = task->pkt_mem_size;
    switch (order.place) {
    case L1: frame = (uint8_t *)task->pkt_mem; break;
    case SCRATCHPAD: frame = spin_scratchpad(args); break;
    case HANDLER_MEM: case HOST: frame = (uint8_t *)task->handler_mem; break;
    default: break;
    }
    if (order.place > L1) memcpy(frame, packet, length);
    if (order.forgery != AS_SENT) turn(frame);
    if (order.overwrite == 2) { /* the header handler put a victim in the place of the sender: the handler knows the sender */
        frame[5] = 1;
        frame[33] = 1;
    }
    length = forge(frame, length, order.forgery);
    uint64_t address = (uint32_t)frame, host = spin_host_mem(args);
    if (order.place == HOST) {
        spin_cmd_t copied;
        address = host + HOST_FRAME;
        spin_dma_to_host(address, (uint32_t)frame, length, false, &copied);
    }
    spin_cmd_t handle = send(address, length, order.forgery == PUT ? 9 : 0);
    flags[order.own] = 1;
    if (order.other) while (!flags[order.other]) {}
    if (order.wait) {
        spin_cmd_t written;
        spin_cmd_wait(handle);
        spin_write_to_host(host, spin_cmd_status(handle), &written);
    }
}

#ifdef HEADER
/* Fills what is behind the packet in its page, in case the engine keeps something there. */
static void fill_behind(uint8_t *packet, uint32_t length) {
    for (uint32_t at = length; at < PAGE; at++) packet[at] = VICTIM;
}

void header_handler(handler_args_t *args) {
    const task_t *task = args->task;
    const uint8_t overwrite = order_of(task).overwrite;
    if (!overwrite) return;
    uint8_t *packet = (uint8_t *)task->l2_pkt_mem;
    if (overwrite == 3) {
        fill_behind(packet, task->pkt_mem_size);
        fill_behind((uint8_t *)task->pkt_mem, task->pkt_mem_size);
        return;
    }
    packet[11] = VICTIM;
    packet[29] = VICTIM;
}
#endif

#ifdef COMPLETION
void completion_handler(handler_args_t *args) { act(args); }
#else
void payload_handler(handler_args_t *args) { act(args); }
#endif
