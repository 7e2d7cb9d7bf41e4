/* Answers the requests on UDP port 7002 that the cache on the NIC cannot answer, and fills the cache. Ends after ANSWERS of them.
 * Usage: cache HANDLERS.elf ANSWERS [SOCKET] */
#include <arpa/inet.h>
#include <inttypes.h>
#include <spin_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT 7002
#define RULE "udp dport 7002"
#define KEYS 4096u
#define ENTRIES 1024u /* of the cache */

enum { GET = 1, SET = 2, ANSWER = 4 };

typedef struct request {
    uint32_t operation, key; /* in network order */
    char value[16];
} request;

/* An entry of the cache. The handler uses it if both versions are equal and not 0. */
typedef struct entry {
    uint32_t version, key;
    char value[16];
    uint32_t written, unused;
} entry;

static char store[KEYS][16]; /* slow, one may imagine */

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
    check(spin_options_set_name(options, "cache"), "name");
    check(spin_options_add_rule(options, RULE), RULE);
    check(spin_options_set_handler_memory(options, ENTRIES * sizeof(entry)), "handler memory");
    check(spin_options_set_verdicts(options, 1), "verdicts");
    check(spin_install(client, image, options, &context), "install");
    spin_options_free(options);
    spin_image_free(image);
    return context;
}

/* Reads or changes the store, and completes the answer. Returns whether the request is one. */
static int serve(request *r) {
    uint32_t operation = ntohl(r->operation), key = ntohl(r->key);
    if ((operation != GET && operation != SET) || key >= KEYS) return 0;
    if (operation == SET) memcpy(store[key], r->value, sizeof r->value);
    memcpy(r->value, store[key], sizeof r->value);
    r->operation = htonl(ANSWER);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: cache HANDLERS.elf ANSWERS [SOCKET]\n"), 2;
    uint32_t answers = (uint32_t)strtoul(argv[2], NULL, 10), cache, size;
    for (unsigned key = 0; key < KEYS; key++) snprintf(store[key], sizeof store[key], "value %u", key);
    /* A socket that gets the packets that the handler passes to the kernel. */
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    socklen_t len = sizeof address;
    int server = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(server, (void *)&address, len) != 0) return perror("socket"), 1;
    spin_client *client;
    check(spin_connect(argc > 3 ? argv[3] : NULL, &client), "connect");
    spin_context *context = install(client, argv[1]);
    check(spin_context_handler_memory(context, &cache, &size), "handler memory");
    printf("waiting for %" PRIu32 " requests: %s\n", answers, RULE);
    fflush(stdout);
    for (uint32_t answered = 0; answered < answers;) {
        request r;
        ssize_t got = recvfrom(server, &r, sizeof r, 0, (void *)&address, &len);
        if (got < 0) return perror("receive"), 1;
        if (got != sizeof r || !serve(&r)) continue;
        answered++;
        entry e = { .version = answered, .key = r.key, .written = answered };
        memcpy(e.value, r.value, sizeof e.value);
        uint32_t at = cache + ntohl(r.key) % ENTRIES * (uint32_t)sizeof e;
        /* Before the answer, so that a client that was told a new value never gets the old one. */
        check(spin_write_memory(client, spin_context_id(context), at, &e, sizeof e), "cache");
        sendto(server, &r, sizeof r, 0, (void *)&address, len);
    }
    printf("%" PRIu32 " requests answered\n", answers);
    spin_context_free(context);
    spin_disconnect(client);
    close(server);
    return 0;
}
