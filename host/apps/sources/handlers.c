/* Counts the packets and bytes of each IPv4 source address, and keeps the counts in host memory up to date.
 *
 * The table is the context's handler memory: a hash table, each row with a lock. A source that finds no free row is counted in the last
 * row. Host memory has the first COUNTS bytes of each row: address as in the packet (0: no source), packets, bytes; 8 bytes each. */
#include <spin.h>

#define ROWS 1024u /* without the last one */
#define PROBES 8u
#define COUNTS 24u

typedef struct row {
    uint64_t address;
    uint64_t packets;
    uint64_t bytes; /* of frames, Ethernet header included */
    uint32_t lock;
    uint32_t unused;
} row;

/* Returns the row of a source, locked. */
static row *lock_row(row *table, uint32_t address) {
    uint32_t hash = spin_ntohl(address) * 0x9e3779b1u >> 16;
    for (uint32_t i = 0; address && i < PROBES; i++) {
        row *r = &table[(hash + i) % ROWS];
        spin_lock(&r->lock);
        if (!r->packets) r->address = address;
        if (r->address == address) return r;
        spin_unlock(&r->lock);
    }
    spin_lock(&table[ROWS].lock);
    return &table[ROWS];
}

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    spin_packet p;
    if (task->handler_mem_size < (ROWS + 1) * sizeof(row) || !spin_parse_ipv4(args, &p)) return;
    row *table = (row *)task->handler_mem;
    row *r = lock_row(table, spin_load32(p.ip + 12));
    r->packets++;
    r->bytes += p.frame_len;
    spin_cmd_t handle;
    spin_write_bytes_to_host(spin_host_mem(args) + (uint32_t)(r - table) * COUNTS, r, COUNTS, &handle);
    spin_cmd_wait(handle); /* or a later packet's counts could be written before these */
    spin_unlock(&r->lock);
}
