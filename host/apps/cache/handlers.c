/* Answers requests from a cache in handler memory. Other packets go on to the kernel, and to the application's socket.
 *
 * A request and its answer have 24 bytes: operation and key, each a word in network order, and a value of 16 bytes. The operation of an
 * answer says who gave it. */
#define SPIN_VERDICTS
#include <spin.h>

enum { GET = 1, HIT = 3 }; /* SET is 2, and the application's answer is 4 */
#define REQUEST_BYTES 24u

/* A key's entry is at the index key % number of entries. The application writes entries while handlers read them. */
typedef struct entry {
    uint32_t version; /* of each write another one; 0: the entry is empty */
    uint32_t key;     /* as in the packet */
    uint32_t value[4];
    uint32_t written; /* the version again */
    uint32_t unused;
} entry;

/* Copies the value of a key. Returns whether it is cached. The application writes an entry from its first word to its last. Read in the
 * opposite order, the entry is of a single write if both versions are equal. */
static bool find(const volatile entry *e, uint32_t key, uint32_t *value) {
    uint32_t written = e->written;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < 4; i++) value[i] = e->value[i];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return e->key == key && written && e->version == written;
}

spin_verdict_t payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    uint32_t entries = task->handler_mem_size / sizeof(entry), value[4];
    spin_packet p;
    if (!entries || !spin_parse_udp_l2(args, &p) || !spin_is_unicast(&p)) return SPIN_VERDICT_PASS;
    if (p.payload_len != REQUEST_BYTES || spin_read_be32(p.payload) != GET) return SPIN_VERDICT_PASS;
    const entry *cache = (const entry *)task->handler_mem;
    if (!find(&cache[spin_read_be32(p.payload + 4) % entries], spin_load32(p.payload + 4), value)) return SPIN_VERDICT_PASS;
    spin_write_be32(p.payload, HIT);
    for (uint32_t i = 0; i < 4; i++) spin_store32(p.payload + 8 + 4 * i, value[i]);
    spin_udp_write_checksum(&p);
    spin_swap_addresses(&p);
    spin_swap_ports(p.l4);
    spin_send_reply(&p);
    return SPIN_VERDICT_SUCCESS;
}
