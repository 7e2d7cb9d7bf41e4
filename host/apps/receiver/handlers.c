/* Receives messages of many UDP datagrams: copies each payload to its place in host memory, and wakes the application once per message.
 *
 * A datagram begins with four words in network order: id of the message, its length, offset of these bytes, 1 for the last datagram. Host
 * memory consists of SLOTS slots: a descriptor, and behind DESCRIPTOR_BYTES the message. The first 8 bytes of the descriptor are the
 * message's length, 0 while there is none. */
#define SPIN_VERDICTS
#include <spin.h>

#define SLOTS 16u
#define SLOT_BYTES 65536u
#define DESCRIPTOR_BYTES 64u
#define MESSAGE_BYTES (SLOT_BYTES - DESCRIPTOR_BYTES) /* at most */
#define HEADER_BYTES 16u

/* The descriptor behind the length. */
typedef struct descriptor {
    uint32_t id;
    uint32_t address; /* IPv4 source, as in the packet */
    uint32_t port;    /* source port */
    uint32_t unused;
} descriptor;

/* State of a slot, in handler memory. */
typedef struct slot {
    uint32_t full;     /* not 0: the message is complete. The application writes 0 when it has read it. */
    uint32_t owner;    /* queue of the message, which is its own while it is open */
    uint32_t received; /* bytes */
    uint32_t unused;
} slot;

/* A parsed datagram. */
typedef struct part {
    spin_packet packet;
    uint32_t id, length, offset;
    slot *slot;
    uint64_t host; /* address of the slot in host memory */
} part;

/* Parses a datagram of a message. Returns false if it is another packet. */
static bool parse(const handler_args_t *args, part *m) {
    spin_packet *p = &m->packet;
    if (args->task->handler_mem_size < SLOTS * sizeof(slot)) return false;
    if (!spin_parse_udp(args, p) || p->ethertype != SPIN_ETHERTYPE_IPV4 || p->payload_len < HEADER_BYTES) return false;
    m->id = spin_read_be32(p->payload);
    m->length = spin_read_be32(p->payload + 4);
    m->offset = spin_read_be32(p->payload + 8);
    /* Ids of one sender that follow each other have different slots. */
    uint32_t index = (m->id + spin_read_be32(p->ip + 12)) % SLOTS;
    m->slot = (slot *)args->task->handler_mem + index;
    m->host = spin_host_mem(args) + index * SLOT_BYTES;
    return true;
}

/* A message whose slot is full is dropped; its sender repeats it. A slot that is not full may have an incomplete message, which the new
 * one displaces, so that a lost packet costs no slot. If a packet of the displaced one is copied at that moment, the checksum is wrong. */
spin_verdict_t header_handler(handler_args_t *args) {
    part m;
    if (!parse(args, &m) || m.slot->full) return SPIN_VERDICT_DROP;
    m.slot->owner = args->task->flow_id;
    m.slot->received = 0;
    return SPIN_VERDICT_PROCESS_DATA;
}

spin_verdict_t payload_handler(handler_args_t *args) {
    part m;
    if (!parse(args, &m) || m.slot->owner != args->task->flow_id) return SPIN_VERDICT_SUCCESS;
    uint32_t bytes = m.packet.payload_len - HEADER_BYTES;
    if (bytes == 0 || bytes > MESSAGE_BYTES || m.offset > MESSAGE_BYTES - bytes) return SPIN_VERDICT_SUCCESS;
    spin_cmd_t handle;
    uint64_t to = m.host + DESCRIPTOR_BYTES + m.offset;
    spin_dma_to_host(to, (uint32_t)(m.packet.payload + HEADER_BYTES), bytes, false, &handle);
    spin_amo_add(&m.slot->received, bytes);
    return SPIN_VERDICT_SUCCESS;
}

/* Runs when all payload handlers and their copies are complete. */
spin_verdict_t completion_handler(handler_args_t *args) {
    part m;
    if (!parse(args, &m) || m.slot->owner != args->task->flow_id) return SPIN_VERDICT_SUCCESS;
    if (m.length == 0 || m.length > MESSAGE_BYTES || m.slot->received != m.length) return SPIN_VERDICT_SUCCESS;
    m.slot->full = 1;
    descriptor d = { m.id, spin_load32(m.packet.ip + 12), spin_read_be16(m.packet.l4), 0 };
    uint64_t length = m.length;
    spin_cmd_t handle;
    spin_write_bytes_to_host(m.host + 8, &d, sizeof d, &handle);
    spin_cmd_wait(handle); /* then the length, by a command of its own: an application that sees it sees the whole message */
    spin_dma_to_host(m.host, (uint32_t)&length, sizeof length, true, &handle);
    return SPIN_VERDICT_SUCCESS;
}
