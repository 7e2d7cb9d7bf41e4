/* Host program of handlers/filtering: datagrams from 10.0.0.1 and 10.0.0.3 get ports 7001 and 7003. Prints source and destination port of
 * the headers that arrive in host memory. */
#include "host_program.h"

#define ENTRIES 65536u
#define RECORD 64u
/* Number of table entries where a source may be stored. */
#define PROBES 8u
/* Length of the headers that handlers write to a record. */
#define HEADERS 42

/* Host memory. Handlers read the table when `ready` is set. */
struct memory {
    unsigned char records[ENTRIES][RECORD];
    uint64_t table[ENTRIES];
    uint32_t ready;
};

/* Inserts a source into the table. An entry is the source's four bytes, and its port in network order. */
static void enter(struct memory *memory, const unsigned char source[4], uint16_t port) {
    const unsigned char bytes[8] = {source[0], source[1], source[2], source[3], (unsigned char)(port >> 8), (unsigned char)port};
    uint32_t key;
    uint64_t entry;
    memcpy(&key, bytes, sizeof key);
    memcpy(&entry, bytes, sizeof entry);
    uint32_t home = key * 0x9e3779b1u >> 16;
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        uint64_t *at = &memory->table[(home + probe) % ENTRIES];
        uint32_t known = (uint32_t)*at;
        if (known != 0 && known != key) continue;
        *at = entry;
        return;
    }
    fprintf(stderr, "no room for this source: the table is too full\n");
    exit(1);
}

/* Prints a record, if headers were written to it. */
static void print_record(const unsigned char record[RECORD]) {
    static const unsigned char none[HEADERS];
    if (memcmp(record, none, HEADERS) == 0) return;
    const unsigned char *source = record + 26;
    printf("%u.%u.%u.%u to port %u\n", source[0], source[1], source[2], source[3], record[36] << 8 | record[37]);
}

int main(int argc, char **argv) {
    spin_options *options = program_options();
    check(spin_options_set_handler_memory(options, 516 << 10));
    check(spin_options_set_host_memory(options, (sizeof(struct memory) + 4095) / 4096 * 4096));
    struct program program = program_install(argc, argv, options);
    struct memory *memory = program.host;
    enter(memory, (unsigned char[]){10, 0, 0, 1}, 7001);
    enter(memory, (unsigned char[]){10, 0, 0, 3}, 7003);
    __atomic_store_n(&memory->ready, 1, __ATOMIC_RELEASE);
    program_wait(&program);
    for (unsigned entry = 0; entry < ENTRIES; entry++) print_record(memory->records[entry]);
    program_end(&program);
    return 0;
}
