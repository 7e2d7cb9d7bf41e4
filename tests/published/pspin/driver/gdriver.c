/* See gdriver.h. Options: -m messages, -p packets of each, -s bytes of a packet, -d and -l cycles after a packet and after a message,
 * -t trace, -i interactive. */
#include "gdriver.h"

#include <assert.h>
#include <packets.h>
#include <pspinsim.h>
#include <spin.h>
#include <spin_hw_conf.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_CONTEXTS 2
#define SCRATCHPAD_SIZE (L1_SCRATCHPAD_SIZE / MAX_CONTEXTS < 400 * 1024 ? 64 * 1024 : 400 * 1024)
#define HANDLER_MEM_SIZE (L2_HND_BUFF_SIZE / MAX_CONTEXTS)
#define HOST_ADDR 0xdeadbeefdeadbeefULL
#define HOST_SIZE (1024 * 1024 * 1024)

typedef struct {
    fill_packet_fun_t fill;
    char matching_ctx[GDRIVER_MATCHING_CTX_MAXSIZE];
} context_t;

static struct {
    uint32_t messages, packets, size, packet_delay, message_delay;
    const char *trace;
    match_packet_fun_t match;
    context_t contexts[MAX_CONTEXTS];
    spin_ec_t mems[MAX_CONTEXTS];
    int count, interactive;
    interactive_cb_t callback;
    uint64_t added, released;
} driver;

static void feedback(uint64_t user, uint64_t nic_arrival, uint64_t pspin_arrival, uint64_t end) {
    (void)user, (void)nic_arrival, (void)pspin_arrival, (void)end;
    driver.released++;
}

int gdriver_init(int argc, char **argv, match_packet_fun_t match, int *ectx_num) {
    pspin_conf_t conf;
    int option;
    driver.messages = 1, driver.packets = 32, driver.size = 1024, driver.packet_delay = 20, driver.message_delay = 40;
    driver.match = match;
    while ((option = getopt(argc, argv, "m:p:s:d:l:t:i")) != -1) {
        switch (option) {
        case 'm': driver.messages = strtoul(optarg, NULL, 10); break;
        case 'p': driver.packets = strtoul(optarg, NULL, 10); break;
        case 's': driver.size = strtoul(optarg, NULL, 10); break;
        case 'd': driver.packet_delay = strtoul(optarg, NULL, 10); break;
        case 'l': driver.message_delay = strtoul(optarg, NULL, 10); break;
        case 't': driver.trace = optarg; break;
        case 'i': driver.interactive = 1; break;
        default: return GDRIVER_ERR;
        }
    }
    pspinsim_default_conf(&conf);
    conf.slm_files_path = "build/slm_files/";
    pspinsim_init(argc, argv, &conf);
    pspinsim_cb_set_pkt_feedback(feedback);
    if (ectx_num) *ectx_num = MAX_CONTEXTS;
    return GDRIVER_OK;
}

static void handler(const char *file, const char *name, uint32_t *addr, uint32_t *size) {
    spin_nic_addr_t found = 0;
    size_t bytes = 0;
    if (name) spin_find_handler_by_name(file, name, &found, &bytes);
    *addr = found;
    *size = bytes;
}

int gdriver_add_ectx(const char *hfile, const char *hh, const char *ph, const char *th, fill_packet_fun_t fill, void *l2_img,
                     size_t l2_img_size, void *matching_ctx, size_t matching_ctx_size) {
    uint32_t addr, size;
    if (driver.count == MAX_CONTEXTS || matching_ctx_size > GDRIVER_MATCHING_CTX_MAXSIZE) return GDRIVER_ERR;
    context_t *context = &driver.contexts[driver.count];
    spin_ec_t *ec = &driver.mems[driver.count];
    handler(hfile, hh, &addr, &size), ec->hh_addr = addr, ec->hh_size = size;
    handler(hfile, ph, &addr, &size), ec->ph_addr = addr, ec->ph_size = size;
    handler(hfile, th, &addr, &size), ec->th_addr = addr, ec->th_size = size;
    ec->handler_mem_addr = L2_HND_BUFF_START + driver.count * HANDLER_MEM_SIZE;
    ec->handler_mem_size = HANDLER_MEM_SIZE;
    ec->host_mem_addr = HOST_ADDR;
    ec->host_mem_size = HOST_SIZE;
    for (int i = 0; i < NUM_CLUSTERS; i++) {
        ec->scratchpad_addr[i] = driver.count * SCRATCHPAD_SIZE;
        ec->scratchpad_size[i] = SCRATCHPAD_SIZE;
    }
    assert(l2_img_size <= HANDLER_MEM_SIZE);
    if (l2_img) spin_nicmem_write(ec->handler_mem_addr, l2_img, l2_img_size, NULL);
    context->fill = fill;
    if (matching_ctx) memcpy(context->matching_ctx, matching_ctx, matching_ctx_size);
    driver.count++;
    return GDRIVER_OK;
}

static void add(int number, uint32_t message, uint32_t packet, uint8_t *buf, uint32_t size, uint8_t last, uint32_t wait) {
    context_t *context = &driver.contexts[number];
    uint32_t l1_size = size;
    if (context->fill) {
        l1_size = context->fill(message, packet, buf, size, &l1_size);
    } else {
        /* These fields and no other: the rest is what the buffer held before. */
        pkt_hdr_t *hdr = (pkt_hdr_t *)buf;
        hdr->ip_hdr.ihl = 5;
        hdr->ip_hdr.length = (uint16_t)size;
    }
    pspinsim_packet_add(&driver.mems[number], message, buf, size, l1_size, last, wait, driver.added++);
}

static int add_trace(void) {
    uint32_t sources, packets, max_size;
    FILE *file = fopen(driver.trace, "r");
    if (!file || fscanf(file, "%u %u %u", &sources, &packets, &max_size) != 3) return GDRIVER_ERR;
    uint8_t *buf = malloc(max_size);
    for (uint32_t i = 0; i < packets; i++) {
        char source[64], destination[64];
        uint32_t size, gap, message, last;
        if (fscanf(file, "%63s %63s %u %u %u %u", source, destination, &size, &gap, &message, &last) != 6) return GDRIVER_ERR;
        for (int c = 0; size > 0 && c < driver.count; c++) {
            if (driver.match && !driver.match(source, driver.contexts[c].matching_ctx)) continue;
            add(c, message, i, buf, size, (uint8_t)last, gap);
            break;
        }
    }
    free(buf);
    fclose(file);
    return GDRIVER_OK;
}

void gdriver_set_interactive_cb(interactive_cb_t cb) { driver.callback = cb; }

int gdriver_is_interactive(void) { return driver.interactive; }

spin_ec_t *gdriver_get_ectx_mems(void) { return driver.mems; }

static int run_interactive(void) {
    uint8_t done = 0;
    while (!done) {
        if (driver.callback && driver.callback()) {
            driver.callback = NULL;
            pspinsim_packet_eos();
        }
        if (pspinsim_run_tick(&done) != SPIN_SUCCESS) return GDRIVER_ERR;
    }
    return GDRIVER_OK;
}

int gdriver_run(void) {
    if (driver.interactive) return run_interactive();
    if (driver.trace) {
        if (add_trace() != GDRIVER_OK) return GDRIVER_ERR;
    } else {
        uint8_t *buf = malloc(driver.size);
        for (uint32_t m = 0; m < driver.messages; m++) {
            for (uint32_t p = 0; p < driver.packets; p++) {
                int last = p + 1 == driver.packets;
                add((int)(m % driver.count), m, p, buf, driver.size, last, last ? driver.message_delay : driver.packet_delay);
            }
        }
        free(buf);
    }
    pspinsim_packet_eos();
    return pspinsim_run() == SPIN_SUCCESS ? GDRIVER_OK : GDRIVER_ERR;
}

int gdriver_fini(void) {
    pspinsim_fini();
    /* Without a trace, each packet that the driver made has to come back. */
    if (driver.interactive) return GDRIVER_OK;
    return driver.trace ? 1 : driver.released == driver.added ? GDRIVER_OK : GDRIVER_ERR;
}
