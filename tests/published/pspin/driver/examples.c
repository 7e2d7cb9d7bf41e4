/* Drivers of the example handlers: examples NAME IMAGE [OPTIONS]. Each checks the results of a whole run. */
#include <assert.h>
#include <packets.h>
#include <pspinsim.h>
#include <spin_conf.h>
#include <stdio.h>
#include <string.h>

#include "gdriver.h"

/* Headers of IP and UDP, which are the start of a packet, and what is before them in a frame. */
#define HEADERS 28
#define LINK (sizeof(pkt_hdr_t) - HEADERS)
#define HOST 0xdeadbeefdeadbeefULL
#define WORDS 1024

static const char *image;
static int options_count;
static char **options;

static uint64_t sent, host_writes, wrong;
static uint32_t sums[WORDS];
static uint8_t host_memory[4096];

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            return EXIT_FAILURE;                                               \
        }                                                                      \
    } while (0)

static uint32_t mix(uint32_t message, uint32_t packet, uint32_t at) {
    uint32_t x = message * 2654435761u ^ packet * 40503u ^ at * 2246822519u;
    return x ^ x >> 13;
}

typedef struct {
    ip_hdr_t ip_hdr;
    udp_hdr_t udp_hdr;
} ip_packet_t;

#ifdef SPIN_ABI_FPSPIN
#define TOTAL(size) htons((uint16_t)(size))
#else
#define TOTAL(size) (uint16_t)(size)
#endif

/* An IP packet of words, each of which `value` gives. */
static uint32_t fill(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t size, uint32_t (*value)(uint32_t, uint32_t, uint32_t)) {
    ip_packet_t *hdr = (ip_packet_t *)buf;
    hdr->ip_hdr.version = 4;
    hdr->ip_hdr.ihl = 5;
    hdr->ip_hdr.length = TOTAL(size);
    hdr->ip_hdr.source_id = 0x0a000001 + message;
    hdr->ip_hdr.dest_id = 0x0a0000aa;
    hdr->udp_hdr.src_port = (uint16_t)(4000 + packet);
    hdr->udp_hdr.dst_port = 9999;
    for (uint32_t at = 0; at < (size - HEADERS) / 4; at++) {
        uint32_t word = value(message, packet, at);
        memcpy(buf + HEADERS + 4 * at, &word, 4);
    }
    return size;
}

/* Where a message's tasks run: sums of a whole run, over all clusters' scratchpads at `place`. */
static uint32_t in_scratchpads(uint32_t place) {
    uint32_t sum = 0;
    for (uint32_t cluster = 0; cluster < NUM_CLUSTERS; cluster++) {
        for (uint32_t context = 0; context < 2; context++) {
            uint32_t word = 0;
            uint32_t base = L1_CLUSTER_BASE + cluster * L1_CLUSTER_STRIDE + L1_SCRATCHPAD_OFFSET;
            base += gdriver_get_ectx_mems()[context].scratchpad_addr[cluster];
            spin_nicmem_read(base + 4 * place, &word, 4, NULL);
            sum += word;
        }
    }
    return sum;
}

/* Accesses arrive in pieces of at most 64 bytes. */
static void to_host(uint64_t addr, uint8_t *data, size_t len) {
    host_writes++;
    if (addr >= HOST && addr - HOST + len <= sizeof host_memory) memcpy(host_memory + (addr - HOST), data, len);
}

static uint64_t host_word(int at) {
    uint64_t word;
    memcpy(&word, host_memory + 8 * at, sizeof word);
    return word;
}

static int run(const char *hh, const char *ph, const char *th, fill_packet_fun_t fill, int contexts) {
    for (int i = 0; i < contexts; i++) CHECK(gdriver_add_ectx(image, hh, ph, th, fill, NULL, 0, NULL, 0) == GDRIVER_OK);
    /* There are at most two. */
    if (contexts == 2) CHECK(gdriver_add_ectx(image, hh, ph, th, fill, NULL, 0, NULL, 0) == GDRIVER_ERR);
    CHECK(gdriver_run() == GDRIVER_OK);
    return EXIT_SUCCESS;
}

static int begin(match_packet_fun_t match) {
    int contexts = 0;
    CHECK(gdriver_init(options_count, options, match, &contexts) == GDRIVER_OK && contexts == 2);
    return GDRIVER_OK;
}

/* Names that do not exist: the packets pass without handlers. */
static int empty(void) {
    CHECK(begin(NULL) == GDRIVER_OK && run("empty_hh", "empty_ph", "empty_th", NULL, 2) == EXIT_SUCCESS);
    return gdriver_fini();
}

static uint32_t fill_frame(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)l1_size;
    return LINK + fill(message, packet, buf + LINK, max_size - LINK, mix);
}

static uint32_t fill_any(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)l1_size;
    return fill(message, packet, buf, max_size, mix);
}

static void swapped(uint8_t *data, size_t len) {
    data += LINK, len -= LINK;
    ip_packet_t *hdr = (ip_packet_t *)data;
    uint32_t message = hdr->ip_hdr.dest_id - 0x0a000001, packet = hdr->udp_hdr.dst_port - 4000u;
    sent++;
    if (hdr->ip_hdr.source_id != 0x0a0000aa || hdr->udp_hdr.src_port != 9999 || packet >= 32) wrong++;
    for (uint32_t at = 0; at < (len - HEADERS) / 4; at++) {
        uint32_t word = mix(message, packet, at);
        if (memcmp(data + HEADERS + 4 * at, &word, 4)) wrong++;
    }
}

static int ping_pong(void) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pkt_out(swapped);
    CHECK(run(NULL, "pingpong_ph", NULL, fill_frame, 2) == EXIT_SUCCESS);
    CHECK(sent > 0 && sent % 32 == 0 && wrong == 0);
    return gdriver_fini();
}

enum { ASKED = 21 };

/* Sends a packet when the one before has come back, to one context and the other. */
static int ask(void) {
    static uint8_t packet[300];
    static uint64_t asked;
    if (asked > sent) return 0;
    if (asked == ASKED) return 1;
    fill_frame((uint32_t)asked, 0, packet, sizeof packet, NULL);
    wrong += pspinsim_packet_add(&gdriver_get_ectx_mems()[asked % 2], (uint32_t)asked, packet, sizeof packet, sizeof packet, 1, 0, asked);
    asked++;
    return 0;
}

static int interactive(void) {
    spin_ec_t *mems = gdriver_get_ectx_mems();
    CHECK(begin(NULL) == GDRIVER_OK && gdriver_is_interactive());
    gdriver_set_interactive_cb(ask);
    pspinsim_cb_set_pkt_out(swapped);
    CHECK(run(NULL, "pingpong_ph", NULL, NULL, 2) == EXIT_SUCCESS);
    CHECK(sent == ASKED && wrong == 0);
    CHECK(mems[0].handler_mem_addr == L2_HND_BUFF_START && mems[0].ph_addr == mems[1].ph_addr);
    CHECK(mems[1].handler_mem_addr == L2_HND_BUFF_START + mems[0].handler_mem_size);
    return gdriver_fini();
}

static uint32_t fill_first(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)message, (void)packet, (void)l1_size;
    return fill(0, 0, buf, max_size, mix);
}

/* Bytes equal: all packets are alike, since all are copied to the same address. */
static int copy_to_host(void) {
    uint8_t expected[1024];
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(to_host);
    memset(expected, 0, sizeof expected);
    CHECK(run(NULL, "copy_to_host_ph", NULL, fill_first, 1) == EXIT_SUCCESS);
    fill(0, 0, expected, sizeof expected, mix);
    /* Bytes of the header that no one sets are whatever the buffer held. */
    CHECK(host_writes > 0 && !memcmp(host_memory + HEADERS, expected + HEADERS, sizeof expected - HEADERS));
    return gdriver_fini();
}

static void from_host(uint64_t addr, uint8_t *data, size_t len) {
    for (size_t i = 0; i < len; i++) data[i] = (uint8_t)((addr - HOST + i) * 7);
}

static void as_host(uint8_t *data, size_t len) {
    sent++;
    for (size_t i = 0; i < len; i++) wrong += data[i] != (uint8_t)(i * 7);
}

static int copy_from_host(void) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_read(from_host);
    pspinsim_cb_set_pkt_out(as_host);
    CHECK(run(NULL, "copy_from_host_ph", NULL, NULL, 2) == EXIT_SUCCESS);
    CHECK(sent > 0 && wrong == 0);
    return gdriver_fini();
}

static void direct(uint64_t addr, uint8_t *data, size_t len) {
    uint64_t word;
    memcpy(&word, data, 8);
    host_writes++;
    wrong += addr != 0xdeadbeef || len != 8 || word != 0xcafebebe;
}

static int host_direct(void) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(direct);
    CHECK(run(NULL, "host_direct_ph", NULL, NULL, 2) == EXIT_SUCCESS);
    CHECK(host_writes > 0 && host_writes % 32 == 0 && wrong == 0);
    return gdriver_fini();
}

/* The value means nothing, but the write arrives. */
static int aggregate(void) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(to_host);
    CHECK(run(NULL, "aggregate_ph", "aggregate_th", fill_any, 2) == EXIT_SUCCESS);
    CHECK(host_writes > 0);
    return gdriver_fini();
}

static uint32_t fill_summed(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)l1_size;
    for (uint32_t at = 0; at < (max_size - HEADERS) / 4; at++) sums[at] += mix(message, packet, at);
    return fill(message, packet, buf, max_size, mix);
}

static int reduced(const char *ph, const char *th) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(to_host);
    CHECK(run(NULL, ph, th, fill_summed, 2) == EXIT_SUCCESS);
    CHECK(host_writes > 0);
    for (uint32_t at = 0; at < WORDS; at++) CHECK(in_scratchpads(at) == sums[at]);
    return gdriver_fini();
}

static int reduce(void) { return reduced("reduce_ph", "reduce_th"); }

static int aggregate_and_reduce(void) { return reduced("aggregate_and_reduce_ph", "aggregate_and_reduce_th"); }

static uint32_t fill_counted(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)l1_size;
    for (uint32_t at = 0; at < (max_size - HEADERS) / 4; at++) sums[mix(message, packet, at) % WORDS]++;
    return fill(message, packet, buf, max_size, mix);
}

static int histogram(void) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(to_host);
    CHECK(run(NULL, "histogram_ph", "histogram_th", fill_counted, 2) == EXIT_SUCCESS);
    CHECK(host_writes > 0);
    for (uint32_t at = 0; at < WORDS; at++) CHECK(in_scratchpads(at) == sums[at]);
    return gdriver_fini();
}

#ifndef ENTRIES
#define ENTRIES 131072
#endif
static uint32_t table[2 * ENTRIES];

/* The first 8 bytes are the key, and no header. */
static uint32_t fill_key(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)l1_size;
    uint32_t key[2] = {mix(message, packet, 1), mix(message, packet, 2)};
    memcpy(buf, key, sizeof key);
    return max_size;
}

static void looked_up(uint8_t *data, size_t len) {
    uint32_t words[2];
    (void)len;
    memcpy(words, data, sizeof words);
    sent++;
    wrong += words[1] >= ENTRIES || words[0] != table[words[1]];
}

/* `bytes` of the table: the published driver gives 1 MiB to a context that has 512 KiB. */
static int filter(size_t bytes) {
    for (uint32_t at = 0; at < ENTRIES; at++) table[at] = mix(7, 8, at);
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pkt_out(looked_up);
    CHECK(gdriver_add_ectx(image, NULL, "filtering_ph", NULL, fill_key, table, bytes, NULL, 0) == GDRIVER_OK);
    CHECK(gdriver_run() == GDRIVER_OK);
    CHECK(sent > 0 && wrong == 0);
    return gdriver_fini();
}

static int filtering(void) { return filter(ENTRIES * 4); }

static int filtering_published(void) { return filter(2 * ENTRIES * 4); }

static int from_source(char *src, char *matching_ctx) { return !strcmp(src, matching_ctx); }

/* With a trace, the generic driver always returns 1. */
static int synthetic(void) {
    CHECK(begin(from_source) == GDRIVER_OK);
    CHECK(gdriver_add_ectx(image, NULL, "synthetic_ph", NULL, NULL, NULL, 0, "0", 2) == GDRIVER_OK);
    CHECK(gdriver_add_ectx(image, NULL, "synthetic_ph", NULL, NULL, NULL, 0, "1", 2) == GDRIVER_OK);
    CHECK(gdriver_run() == GDRIVER_OK);
    return gdriver_fini();
}

enum { INPUTS = 8 };
static int32_t weights[INPUTS];

static int32_t input(uint32_t packet, uint32_t at) { return (int32_t)(mix(1, packet, at) % 200) - 100; }

static uint32_t sample(uint32_t message, uint32_t packet, uint32_t at) {
    (void)message;
    return at < INPUTS ? (uint32_t)input(packet, at) : packet % 2 ? 1 : (uint32_t)-1;
}

static uint32_t fill_sample(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)l1_size;
    for (uint32_t at = 0; at < INPUTS; at++) weights[at] += (packet % 2 ? 1 : -1) * input(packet, at);
    return fill(message, packet, buf, max_size, sample);
}

static int perceptron(void) {
    for (int at = 0; at < INPUTS; at++) weights[at] = 100 * at;
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(to_host);
    CHECK(run("perceptron_hh", "perceptron_ph", "perceptron_th", fill_sample, 1) == EXIT_SUCCESS);
    for (int at = 0; at < INPUTS; at++) CHECK(host_word(at) == (uint32_t)weights[at]);
    return gdriver_fini();
}

/* Every group of eight arrives backwards. */
static uint32_t fill_number(uint32_t message, uint32_t packet, uint8_t *buf, uint32_t max_size, uint32_t *l1_size) {
    (void)message, (void)l1_size;
    uint32_t number = packet / 8 * 8 + (7 - packet % 8), words[3] = {1, number, number * 3 + 1};
    memcpy(buf, words, sizeof words);
    return max_size;
}

static uint64_t delivered;

static void in_order(uint64_t addr, uint8_t *data, size_t len) {
    wrong += addr != HOST + delivered;
    delivered += len;
    to_host(addr, data, len);
}

/* Like the published driver, it returns 1 when all went well. */
static int out_of_order(void) {
    CHECK(begin(NULL) == GDRIVER_OK);
    pspinsim_cb_set_pcie_slv_write(in_order);
    if (run(NULL, "ooo_ph", NULL, fill_number, 1) != EXIT_SUCCESS) return 3;
    if (delivered != 8 * 32 || wrong) return 4;
    for (int at = 0; at < 32; at++) {
        if (host_word(at) != (uint64_t)at * 3 + 1) return 6;
    }
    return gdriver_fini() == GDRIVER_OK ? 1 : 5;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } examples[] = {
        {"empty", empty}, {"ping_pong", ping_pong}, {"interactive", interactive}, {"copy_to_host", copy_to_host}, {"copy_from_host", copy_from_host},
        {"host_direct", host_direct}, {"aggregate", aggregate}, {"reduce", reduce}, {"aggregate_and_reduce", aggregate_and_reduce},
        {"histogram", histogram}, {"filtering", filtering}, {"filtering_published", filtering_published}, {"synthetic", synthetic},
        {"perceptron", perceptron}, {"out_of_order", out_of_order},
    };
    if (argc < 3) return 2;
    image = argv[2];
    options_count = argc - 2;
    options = argv + 2;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        if (!strcmp(argv[1], examples[i].name)) return examples[i].run();
    }
    return 2;
}
