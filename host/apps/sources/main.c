/* Prints packets and bytes by IPv4 source address of UDP port 7001, most packets first: while packets arrive, and when PACKETS have.
 * Usage: sources HANDLERS.elf PACKETS [SOCKET] */
#include <arpa/inet.h>
#include <inttypes.h>
#include <spin_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RULE "udp dport 7001"
#define ROWS 1025u /* the last one: sources for which the table has no room */
#define HANDLER_MEMORY (ROWS * 32)

typedef struct row {
    uint64_t address, packets, bytes;
} row;

static void check(int status, const char *what) {
    if (status == SPIN_OK) return;
    fprintf(stderr, "%s: %s\n", what, spin_last_error());
    exit(1);
}

static spin_context *install(spin_client *client, const char *file) {
    spin_image *image;
    spin_options *options;
    spin_context *context;
    check(spin_image_load(file, &image), file);
    check(spin_options_new(&options), "options");
    check(spin_options_set_name(options, "sources"), "name");
    check(spin_options_add_rule(options, RULE), RULE);
    check(spin_options_set_host_memory(options, ROWS * sizeof(row)), "host memory");
    check(spin_options_set_handler_memory(options, HANDLER_MEMORY), "handler memory");
    check(spin_install(client, image, options, &context), "install");
    spin_options_free(options);
    spin_image_free(image);
    return context;
}

static int by_packets(const void *left, const void *right) {
    uint64_t a = ((const row *)left)->packets, b = ((const row *)right)->packets;
    return (a < b) - (a > b);
}

/* Copies the rows in use, sorted, and returns their number. Handlers write at any time, but each word as a whole. */
static size_t read_table(const _Atomic uint64_t *host, row rows[ROWS], uint64_t *packets) {
    size_t count = 0;
    *packets = 0;
    for (size_t at = 0; at < ROWS; at++) {
        row r = { host[3 * at], host[3 * at + 1], host[3 * at + 2] };
        *packets += r.packets;
        if (r.packets > 0) rows[count++] = r;
    }
    qsort(rows, count, sizeof(row), by_packets);
    return count;
}

/* Returns the number of packets, and prints the table if it is another one than before. */
static uint64_t print_table(const void *host, uint64_t before) {
    static row rows[ROWS];
    uint64_t packets;
    size_t count = read_table(host, rows, &packets);
    if (packets == before) return packets;
    printf("%" PRIu64 " packets, %zu sources\n", packets, count);
    for (size_t i = 0; i < count; i++) {
        struct in_addr address = { .s_addr = (in_addr_t)rows[i].address };
        printf("%-15s %9" PRIu64 " packets %12" PRIu64 " bytes\n", inet_ntoa(address), rows[i].packets, rows[i].bytes);
    }
    fflush(stdout);
    return packets;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: sources HANDLERS.elf PACKETS [SOCKET]\n"), 2;
    uint64_t expected = strtoull(argv[2], NULL, 10);
    spin_client *client;
    void *host;
    size_t len;
    check(spin_connect(argc > 3 ? argv[3] : NULL, &client), "connect");
    spin_context *context = install(client, argv[1]);
    check(spin_context_host_memory(context, &host, &len), "host memory");
    printf("waiting for %" PRIu64 " packets: %s\n", expected, RULE);
    fflush(stdout);
    for (uint64_t packets = 0; packets < expected; usleep(100000)) packets = print_table(host, packets);
    /* No handler of a removed context runs, so these counts are final. */
    check(spin_remove(client, spin_context_id(context)), "remove");
    print_table(host, UINT64_MAX);
    spin_context_free(context);
    spin_disconnect(client);
    return 0;
}
