/* A driver for any handlers: messages of made-up packets, or those of a trace, for two execution contexts.
 *
 *   generic_driver [-m MESSAGES] [-p PACKETS] [-s SIZE] [-d DELAY] [-l DELAY] [-t TRACE] IMAGE PAYLOAD [HEADER|- [COMPLETION|-]]
 *
 * A trace begins with a line `nsources npackets max_size`, and has npackets lines `src dst size gap msgid last`; one of size 0 is a
 * wait. */
#include <errno.h>
#include <inttypes.h>
#include <pspinsim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCRATCHPAD_SIZE (400 * 1024)
#define HANDLER_MEM_SIZE (512 * 1024)
#define HOST_MEM_ADDR 0xdeadbeefdeadbeefULL
#define HOST_MEM_SIZE (1024 * 1024 * 1024)
#define CONTEXTS 2

typedef struct {
    uint32_t messages;       /* -m */
    uint32_t packets;        /* -p: of each message */
    uint32_t size;           /* -s: bytes of a packet */
    uint32_t packet_delay;   /* -d: cycles */
    uint32_t message_delay;  /* -l: cycles */
    const char *trace;       /* -t */
} options_t;

static spin_ec_t contexts[CONTEXTS];
static uint64_t released;

static void fail(const char *what) {
    fprintf(stderr, "generic_driver: %s\n", what);
    exit(EXIT_FAILURE);
}

static void check(int result) {
    if (result != SPIN_SUCCESS) exit(EXIT_FAILURE);
}

static uint32_t number(const char *text) {
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || *text == '-' || value > UINT32_MAX) fail("an option wants a number");
    return (uint32_t)value;
}

static options_t parse(int argc, char **argv) {
    options_t options = {.messages = 1, .packets = 32, .size = 1024, .packet_delay = 20, .message_delay = 40, .trace = NULL};
    int option;
    while ((option = getopt(argc, argv, "m:p:s:d:l:t:")) != -1) {
        switch (option) {
        case 'm': options.messages = number(optarg); break;
        case 'p': options.packets = number(optarg); break;
        case 's': options.size = number(optarg); break;
        case 'd': options.packet_delay = number(optarg); break;
        case 'l': options.message_delay = number(optarg); break;
        case 't': options.trace = optarg; break;
        default: exit(EXIT_FAILURE);
        }
    }
    if (options.size > MAX_PKT_BYTES) fail("-s: packets of at most 4096 bytes");
    return options;
}

static void find(const char *image, const char *name, uint32_t *addr, uint32_t *size) {
    spin_nic_addr_t found = 0;
    size_t bytes = 0;
    if (name != NULL && strcmp(name, "-") != 0) check(spin_find_handler_by_name(image, name, &found, &bytes));
    *addr = found;
    *size = (uint32_t)bytes;
}

/* Two contexts that share handlers and nothing else. */
static void make_contexts(const char *image, const char *header, const char *payload, const char *completion) {
    for (uint32_t number = 0; number < CONTEXTS; number++) {
        spin_ec_t ec = {0};
        uint32_t addr, size;
        find(image, header, &addr, &size);
        ec.hh_addr = addr, ec.hh_size = size;
        find(image, payload, &addr, &size);
        ec.ph_addr = addr, ec.ph_size = size;
        find(image, completion, &addr, &size);
        ec.th_addr = addr, ec.th_size = size;
        ec.handler_mem_addr = L2_HND_BUFF_START + number * HANDLER_MEM_SIZE;
        ec.handler_mem_size = HANDLER_MEM_SIZE;
        ec.host_mem_addr = HOST_MEM_ADDR;
        ec.host_mem_size = HOST_MEM_SIZE;
        for (int cluster = 0; cluster < NUM_CLUSTERS; cluster++) {
            ec.scratchpad_addr[cluster] = number * SCRATCHPAD_SIZE;
            ec.scratchpad_size[cluster] = SCRATCHPAD_SIZE;
        }
        contexts[number] = ec;
    }
}

/* A packet as PsPIN's handlers see them: IP and UDP headers in the host's byte order, then numbers. */
static void fill(uint8_t *packet, uint32_t size, uint32_t source, uint32_t destination, uint32_t sequence) {
    memset(packet, 0, size);
    for (uint32_t at = 28; at < size; at++) packet[at] = (uint8_t)(sequence + at);
    if (size < 28) return;
    uint16_t length = (uint16_t)size, datagram = (uint16_t)(size - 20), ports[2] = {(uint16_t)source, (uint16_t)destination};
    packet[0] = 0x54;
    memcpy(packet + 2, &length, 2);
    packet[8] = 64;
    packet[9] = 17;
    memcpy(packet + 12, &source, 4);
    memcpy(packet + 16, &destination, 4);
    memcpy(packet + 20, ports, 4);
    memcpy(packet + 24, &datagram, 2);
}

static void add_messages(const options_t *options, uint8_t *packet) {
    for (uint32_t message = 0; message < options->messages; message++) {
        for (uint32_t number = 0; number < options->packets; number++) {
            int last = number + 1 == options->packets;
            uint32_t wait = last ? options->message_delay : options->packet_delay;
            fill(packet, options->size, message, 0, number);
            check(pspinsim_packet_add(&contexts[message % CONTEXTS], message, packet, options->size, options->size,
                                      (uint8_t)last, wait, message * (uint64_t)options->packets + number));
        }
    }
}

/* A packet of the trace that waits to be added: how long after it the next one comes, lines behind it say too. */
typedef struct {
    uint32_t source, destination, size, gap, message, last, sequence;
    int there;
} pending_t;

static void add_pending(const pending_t *pending, uint8_t *packet) {
    if (!pending->there) return;
    fill(packet, pending->size, pending->source, pending->destination, pending->sequence);
    check(pspinsim_packet_add(&contexts[pending->source % CONTEXTS], pending->message, packet, pending->size, pending->size,
                              pending->last != 0, pending->gap, pending->sequence));
}

static void add_trace(const char *path, uint8_t *packet) {
    FILE *file = fopen(path, "r");
    uint32_t sources, packets, longest;
    if (file == NULL) fail("the trace cannot be read");
    if (fscanf(file, "%" SCNu32 " %" SCNu32 " %" SCNu32, &sources, &packets, &longest) != 3 || longest > MAX_PKT_BYTES)
        fail("the trace's first line is not nsources npackets max_size");
    pending_t pending = {0};
    for (uint32_t number = 0; number < packets; number++) {
        pending_t next = {.sequence = number, .there = 1};
        int fields = fscanf(file, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32, &next.source,
                            &next.destination, &next.size, &next.gap, &next.message, &next.last);
        if (fields != 6 || next.size > longest || next.source >= sources) fail("a line of the trace is not understood");
        if (next.size == 0) {
            pending.gap += next.gap;
            continue;
        }
        add_pending(&pending, packet);
        pending = next;
    }
    add_pending(&pending, packet);
    fclose(file);
}

static void feedback(uint64_t user, uint64_t nic_arrival, uint64_t pspin_arrival, uint64_t end) {
    printf("packet %" PRIu64 ": arrived %" PRIu64 " in memory %" PRIu64 " released %" PRIu64 "\n", user, nic_arrival, pspin_arrival,
           end);
    released++;
}

static void sent(uint8_t *data, size_t len) { printf("sent %zu bytes, first %u\n", len, data[0]); }

static void host_write(uint64_t addr, uint8_t *data, size_t len) {
    printf("host write %#" PRIx64 " %zu bytes, first %u\n", addr, len, data[0]);
}

int main(int argc, char **argv) {
    static uint8_t packet[MAX_PKT_BYTES];
    options_t options = parse(argc, argv);
    int names = argc - optind;
    if (names < 2 || names > 4) fail("IMAGE PAYLOAD [HEADER|- [COMPLETION|-]]");
    char **name = argv + optind;
    pspin_conf_t conf;
    check(pspinsim_default_conf(&conf));
    conf.slm_files_path = "build/slm_files/";
    check(pspinsim_init(argc, argv, &conf));
    pspinsim_cb_set_pkt_feedback(feedback);
    pspinsim_cb_set_pkt_out(sent);
    pspinsim_cb_set_pcie_slv_write(host_write);
    make_contexts(name[0], names > 2 ? name[2] : NULL, name[1], names > 3 ? name[3] : NULL);
    if (options.trace != NULL) {
        add_trace(options.trace, packet);
    } else {
        add_messages(&options, packet);
    }
    check(pspinsim_packet_eos());
    check(pspinsim_run());
    printf("released %" PRIu64 "\n", released);
    check(pspinsim_fini());
    return 0;
}
