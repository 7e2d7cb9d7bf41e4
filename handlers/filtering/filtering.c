/* Looks up each UDP datagram's IPv4 source in a table. On a match it overwrites the destination port with the value found and
 * writes the headers to the source's record in host memory.
 *
 * The table has 65,536 entries with open addressing and lies in the context's handler memory. The application writes it to host
 * memory behind the records, then sets the word behind it. Handlers copy each part of the table at the first lookup there and
 * only read it afterwards. */
#include <spin.h>

#define ENTRIES 65536u
/* Maximum number of entries probed. A table in which a key has no place within them is too full. */
#define PROBES 8u
/* Bytes of a record in host memory. Each entry has a record at its index. */
#define RECORD 64u

/* An entry. Source 0, which is no host's address, marks an empty one. */
typedef struct entry {
    uint32_t source; /* IPv4, as in the packet */
    uint32_t port;   /* network order, in the lower half */
} entry;

/* Number of entries copied at a time. */
#define SEGMENT 1024u

/* Handler memory. */
typedef struct state {
    entry table[ENTRIES];
    uint32_t loaded[ENTRIES / SEGMENT]; /* per segment: address of the table once the segment and the next entries are copied, else 0 */
    uint32_t ready;                     /* copy of the application's word */
} state;

/* Layout of host memory: the records, the table, the word. */
#define TABLE_AT (ENTRIES * RECORD)
#define READY_AT (TABLE_AT + ENTRIES * (uint32_t)sizeof(entry))

static bool read_host(const handler_args_t *args, uint32_t offset, void *to, uint32_t length) {
    spin_cmd_t handle;
    spin_dma_from_host(spin_host_mem(args) + offset, (uint32_t)to, length, false, &handle);
    spin_cmd_wait(handle);
    return spin_cmd_status(handle) == SPIN_STATUS_DONE;
}

/* Copies `count` entries from index `first`. */
static bool read_entries(const handler_args_t *args, uint32_t first, uint32_t count) {
    state *s = (state *)args->task->handler_mem;
    return read_host(args, TABLE_AT + first * sizeof(entry), &s->table[first], count * sizeof(entry));
}

/* Loads all entries that a lookup starting in a segment may probe: the segment and the first entries of the next one. Returns
 * false if the application's table is not complete yet. Concurrent handlers write the same bytes. */
static bool load(const handler_args_t *args, uint32_t segment) {
    state *s = (state *)args->task->handler_mem;
    if (s->loaded[segment]) return true;
    if (s->ready == 0 && (!read_host(args, READY_AT, &s->ready, sizeof s->ready) || s->ready == 0)) return false;
    uint32_t first = segment * SEGMENT, next = (first + SEGMENT) % ENTRIES;
    if (!read_entries(args, first, SEGMENT) || !read_entries(args, next, PROBES - 1)) return false;
    __atomic_store_n(&s->loaded[segment], (uint32_t)s->table, __ATOMIC_RELEASE);
    return true;
}

/* Loads the segment of entry `at` and restarts the handler. */
SPIN_APART void load_first(handler_args_t *args, uint32_t at) {
    const task_t *task = args->task;
    if (task->handler_mem_size < sizeof(state) || task->host_mem_size < READY_AT + sizeof(uint32_t)) return;
    if (load(args, at / SEGMENT)) payload_handler(args);
}

/* Whether handler memory has room for the table but not for the state of its segments. The table is then complete from the
 * start. */
static inline bool is_all(const task_t *task) {
    const uint32_t table = ENTRIES * sizeof(entry);
    return task->handler_mem_size - table < sizeof(state) - table;
}

/* The table if the entries that a lookup from `at` may probe are loaded, else NULL. */
static inline const entry *loaded_table(const task_t *task, uint32_t at) {
    const state *s = (const state *)task->handler_mem;
    if (task->handler_mem_size < sizeof *s) return NULL;
    /* The entries' address depends on this load, so they are read after it: no fence is needed. */
    return (const entry *)((const volatile uint32_t *)s->loaded)[at / SEGMENT];
}

/* Fibonacci hashing: the upper bits of the product depend on all bits of the key. */
SPIN_INLINE uint32_t hash(uint32_t source) { return source * 0x9e3779b1u >> 16; }

/* Index of the source's entry, searched from `at` on; ENTRIES if there is none. */
SPIN_INLINE uint32_t find(const entry *table, uint32_t at, uint32_t source) {
    for (uint32_t probe = 0; probe < PROBES; probe++, at = (at + 1) % ENTRIES) {
        if (table[at].source == source) return at;
        if (table[at].source == 0) break;
    }
    return ENTRIES;
}

/* Overwrites the destination port and updates the checksum, if there is one. */
SPIN_INLINE void rewrite(uint8_t *udp, uint16_t port) {
    uint16_t checksum = spin_load16(udp + 6);
    if (checksum) spin_store16(udp + 6, spin_checksum_update(checksum, spin_load16(udp + 2), port));
    spin_store16(udp + 2, port);
}

/* Filters a packet with `headers` bytes of headers. */
SPIN_INLINE void filter(handler_args_t *args, spin_packet *p, uint32_t headers) {
    uint32_t source = spin_load32(p->ip + 12);
    if (source == 0) return;
    uint32_t at = hash(source);
    const task_t *task = args->task;
    const entry *table = (const entry *)task->handler_mem;
    if (!is_all(task)) {
        table = loaded_table(task, at);
        if (!table) return load_first(args, at);
    }
    at = find(table, at, source);
    if (at == ENTRIES) return;
    rewrite(p->l4, (uint16_t)table[at].port);
    spin_cmd_t handle;
    spin_dma_to_host(spin_task_host_mem(task) + at * RECORD, (uint32_t)p->frame, SPIN_MIN(headers, RECORD), false, &handle);
}

/* Filters rare datagrams: with tags or options. */
SPIN_APART void filter_any(handler_args_t *args) {
    spin_packet p;
    if (spin_parse_udp(args, &p) && p.ethertype == SPIN_ETHERTYPE_IPV4) filter(args, &p, (uint32_t)(p.payload - p.frame));
}

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (!spin_parse_plain_udp(args, &p)) return filter_any(args);
    filter(args, &p, SPIN_PLAIN_UDP_HEADERS);
}
