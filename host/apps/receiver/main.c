/* Receives messages on UDP port 7003, checks and acknowledges them. Ends after MESSAGES of them.
 * Usage: receiver HANDLERS.elf MESSAGES [SOCKET] */
#include <arpa/inet.h>
#include <poll.h>
#include <spin_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT 7003
#define RULE "udp dport 7003 and l4[4:2] in 24..65535" /* datagrams with at least a message's header */
#define SLOTS 16u
#define STATE_BYTES 16u /* of a slot, in handler memory */

/* A slot of host memory. */
typedef struct slot {
    _Atomic uint64_t length; /* of the message; 0: none. The handler writes it last. */
    uint32_t id, address, port;
    uint8_t unused[44];
    uint8_t message[65472]; /* its first 8 bytes are the checksum of the rest */
} slot;

static spin_client *client;
static spin_context *context;

static void check(int status, const char *what) {
    if (status == SPIN_OK) return;
    fprintf(stderr, "%s: %s\n", what, spin_last_error());
    exit(1);
}

static void install(const char *file) {
    spin_image *image;
    spin_options *options;
    check(spin_image_load(file, &image), file);
    check(spin_options_new(&options), "options");
    check(spin_options_add_rule(options, RULE), RULE);
    check(spin_options_set_key(options, "flow + payload[0:4]"), "key");      /* sender and id: a message */
    check(spin_options_set_eom(options, "payload[12:4] = 1"), "eom");        /* its last datagram */
    check(spin_options_set_message_timeout_us(options, 2000000), "timeout"); /* if that is lost */
    check(spin_options_set_host_memory(options, SLOTS * sizeof(slot)), "host memory");
    check(spin_options_set_handler_memory(options, SLOTS * STATE_BYTES), "handler memory");
    check(spin_options_set_verdicts(options, 1), "verdicts");
    check(spin_install(client, image, options, &context), "install");
    spin_options_free(options);
    spin_image_free(image);
}

/* Prints a message, frees its slot, and acknowledges it by its id if its checksum (FNV-1a) is right. */
static void take(slot *s, uint32_t state, int server) {
    struct sockaddr_in sender = { .sin_family = AF_INET, .sin_addr.s_addr = s->address, .sin_port = htons((uint16_t)s->port) };
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 8; i < s->length; i++) hash = (hash ^ s->message[i]) * 0x100000001b3u;
    int right = memcmp(&hash, s->message, sizeof hash) == 0;
    printf("message %u: %u bytes, checksum %s\n", s->id, (unsigned)s->length, right ? "right" : "WRONG");
    uint32_t id = htonl(s->id), free_again = 0;
    s->length = 0;
    check(spin_write_memory(client, spin_context_id(context), state, &free_again, sizeof free_again), "slot");
    if (right) sendto(server, &id, sizeof id, 0, (void *)&sender, sizeof sender);
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: receiver HANDLERS.elf MESSAGES [SOCKET]\n"), 2;
    uint32_t expected = (uint32_t)strtoul(argv[2], NULL, 10), received = 0, states, size;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    socklen_t address_len = sizeof address;
    int server = socket(AF_INET, SOCK_DGRAM, 0), arrival;
    if (bind(server, (void *)&address, address_len) != 0) return perror("socket"), 1;
    spin_events *events;
    spin_event event;
    void *host;
    size_t len;
    check(spin_connect(argc > 3 ? argv[3] : NULL, &client), "connect");
    install(argv[1]);
    check(spin_context_host_memory(context, &host, &len), "host memory");
    check(spin_context_handler_memory(context, &states, &size), "handler memory");
    check(spin_events_open(client, spin_context_id(context), &events), "events");
    check(spin_events_fd(events, &arrival), "events");
    struct pollfd ready[2] = { { .fd = arrival, .events = POLLIN }, { .fd = server, .events = POLLIN } };
    printf("waiting for %u messages: %s\n", expected, RULE);
    while (received < expected && fflush(stdout) == 0 && poll(ready, 2, -1) > 0) {
        uint64_t rings;
        /* A datagram without a header reaches the socket past the handlers, and asks for the number of messages. */
        if (ready[1].revents && recvfrom(server, NULL, 0, MSG_DONTWAIT, (void *)&address, &address_len) >= 0)
            sendto(server, &(uint32_t){ htonl(received) }, 4, 0, (void *)&address, address_len);
        if (read(arrival, &rings, sizeof rings) < 0) continue; /* no message */
        while (spin_events_poll(events, &event) == SPIN_OK) {}
        for (uint32_t i = 0; i < SLOTS && received < expected; i++)
            if (((slot *)host)[i].length > 0) take((slot *)host + i, states + i * STATE_BYTES, server), received++;
    }
    spin_events_close(events);
    spin_context_free(context);
    spin_disconnect(client);
    close(server);
    return 0;
}
