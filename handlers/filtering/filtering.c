/* Looks each UDP datagram's IPv4 source up in a table: on a match the destination port is overwritten with the value
 * found, and the headers go to the source's record in host memory.
 *
 * The table is the context's handler memory: 65,536 entries, open addressing, written by the application before packets
 * arrive. Handlers only read it. */
#include <spin.h>

#define ENTRIES 65536u
/* Entries looked at: an application that cannot place a key within them has filled the table too much. */
#define PROBES 8u
/* Bytes of a record in host memory; there is one for each entry, at the same index. */
#define RECORD 64u

/* An entry; source 0 (no host's address) for none. */
typedef struct entry {
    uint32_t source; /* IPv4, as in the packet */
    uint32_t port;   /* network order, in the lower half */
} entry;

/* Fibonacci hashing: the upper bits of the product depend on all of the key. */
static uint32_t hash(uint32_t source) { return source * 0x9e3779b1u >> 16; }

/* Index of the source's entry, ENTRIES if it has none. */
static uint32_t find(const entry *table, uint32_t source) {
    uint32_t at = hash(source);
    for (uint32_t probe = 0; probe < PROBES; probe++, at = (at + 1) % ENTRIES) {
        if (table[at].source == source) return at;
        if (table[at].source == 0) break;
    }
    return ENTRIES;
}

/* Overwrites the destination port and makes up for it in the checksum, if there is one. */
static void rewrite(uint8_t *udp, uint16_t port) {
    uint16_t checksum = spin_load16(udp + 6);
    if (checksum) spin_store16(udp + 6, spin_checksum_update(checksum, spin_load16(udp + 2), port));
    spin_store16(udp + 2, port);
}

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_packet p;
    if (task->handler_mem_size < ENTRIES * sizeof(entry) || !spin_parse_udp(args, &p)) return;
    uint32_t source = spin_load32(p.ip + 12);
    if (p.ethertype != SPIN_ETHERTYPE_IPV4 || source == 0) return;
    const entry *table = (const entry *)task->handler_mem;
    uint32_t at = find(table, source);
    if (at == ENTRIES) return;
    rewrite(p.l4, (uint16_t)table[at].port);
    uint32_t length = SPIN_MIN((uint32_t)(p.payload - p.frame), RECORD);
    spin_cmd_t handle;
    spin_dma_to_host(spin_host_mem(args) + at * RECORD, (uint32_t)p.frame, length, false, &handle);
}
