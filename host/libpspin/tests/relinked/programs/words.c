/* Adds a packet for each message id that it is given, the last of its message, and prints what handlers tell the host: words of eight
 * bytes at multiples of eight. Packets come so far apart that none meets another; those of odd messages are of another context.
 *
 *   words IMAGE [-s SIZE] [-m MAX_PKT_SIZE] HANDLER MSGID... */
#include <inttypes.h>
#include <pspinsim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_ADDR UINT64_C(0x10000000)

static void check(int result) {
    if (result != SPIN_SUCCESS) exit(EXIT_FAILURE);
}

static void host_write(uint64_t addr, uint8_t *data, size_t len) {
    uint64_t value = 0;
    if (len != 8 || addr % 8 != 0) exit(EXIT_FAILURE);
    memcpy(&value, data, 8);
    printf("word %" PRIu64 " %" PRIx64 "\n", (addr - HOST_ADDR) / 8, value);
}

static void sent(uint8_t *data, size_t len) {
    (void)data;
    printf("sent %zu\n", len);
}

static void feedback(uint64_t user, uint64_t nic_arrival, uint64_t pspin_arrival, uint64_t end) {
    if (nic_arrival > pspin_arrival || pspin_arrival > end) exit(EXIT_FAILURE);
    printf("released %" PRIu64 "\n", user);
}

int main(int argc, char **argv) {
    uint8_t packet[MAX_PKT_BYTES] = {0x54};
    size_t size = 100;
    pspin_conf_t conf;
    if (argc < 2) return EXIT_FAILURE;
    const char *image = argv[1];
    check(pspinsim_default_conf(&conf));
    int at = 2;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        uint32_t value = (uint32_t)strtoul(argv[at + 1], NULL, 10);
        if (argv[at][1] == 's') size = value;
        if (argv[at][1] == 'm') conf.no_conf.max_pkt_size = value;
    }
    if (at >= argc) return EXIT_FAILURE;
    check(pspinsim_init(argc, argv, &conf));
    pspinsim_cb_set_pcie_slv_write(host_write);
    pspinsim_cb_set_pkt_out(sent);
    pspinsim_cb_set_pkt_feedback(feedback);
    spin_ec_t contexts[2];
    for (uint32_t number = 0; number < 2; number++) {
        spin_nic_addr_t addr = 0;
        size_t bytes = 0;
        check(spin_find_handler_by_name(image, argv[at], &addr, &bytes));
        spin_ec_t ec = {.ph_addr = addr, .ph_size = (uint32_t)bytes, .host_mem_addr = HOST_ADDR, .host_mem_size = 1 << 30};
        ec.handler_mem_addr = 0x1c300000 + number * 512 * 1024;
        ec.handler_mem_size = 512 * 1024;
        for (int cluster = 0; cluster < NUM_CLUSTERS; cluster++) {
            ec.scratchpad_addr[cluster] = number * 409600;
            ec.scratchpad_size[cluster] = 409600;
        }
        contexts[number] = ec;
    }
    for (uint32_t number = 0; at + 1 + (int)number < argc; number++) {
        uint32_t msgid = (uint32_t)strtoul(argv[at + 1 + number], NULL, 10), source = msgid % 2;
        memcpy(packet + 12, &source, 4);
        check(pspinsim_packet_add(&contexts[msgid % 2], msgid, packet, size, size, 1, 100000000, number));
    }
    check(pspinsim_packet_eos());
    check(pspinsim_run());
    check(pspinsim_fini());
    return EXIT_SUCCESS;
}
