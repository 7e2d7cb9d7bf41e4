/* Arguments that nobody should pass: each call has to return SPIN_ERR, and nothing else happens. Called with an image and a folder of
 * files that are none. */
#include <float.h>
#include <math.h>
#include <pspinsim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int line_of_first, calls;
#define REFUSED(call)                                                          \
    do {                                                                       \
        calls++;                                                               \
        if ((call) != SPIN_ERR && line_of_first == 0) line_of_first = __LINE__; \
    } while (0)
#define WORKS(call)                                                                \
    do {                                                                           \
        calls++;                                                                   \
        if ((call) != SPIN_SUCCESS && line_of_first == 0) line_of_first = __LINE__; \
    } while (0)

static spin_ec_t with_handler(uint32_t addr) {
    spin_ec_t ec;
    memset(&ec, 0, sizeof ec);
    ec.ph_addr = addr;
    return ec;
}

static int add(spin_ec_t ec) {
    uint8_t packet[64] = {0};
    return pspinsim_packet_add(&ec, 0, packet, sizeof packet, sizeof packet, 1, 0, 0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    uint8_t packet[8192] = {0}, done = 7;
    spin_nic_addr_t addr = 0x1234;
    size_t size = 55;
    spin_ec_t ec = with_handler(0);

    /* Before there is a simulation. */
    REFUSED(pspinsim_run());
    REFUSED(pspinsim_run_tick(&done));
    REFUSED(pspinsim_fini());
    REFUSED(pspinsim_packet_eos());
    REFUSED(add(ec));
    REFUSED(spin_nicmem_read(L2_HND_BUFF_START, packet, 4, NULL));
    REFUSED(pspinsim_packet_trace_read("/nowhere", "/nowhere"));
    REFUSED(pspinsim_default_conf(NULL));

    /* Configurations. */
    const double gaps[] = {-1, NAN, INFINITY, DBL_MAX};
    for (int at = 0; at < 4; at++) {
        pspin_conf_t conf;
        WORKS(pspinsim_default_conf(&conf));
        conf.no_conf.network_G = gaps[at];
        REFUSED(pspinsim_init(0, NULL, &conf));
        WORKS(pspinsim_default_conf(&conf));
        conf.pcie_slv_conf.pcie_G = gaps[at];
        REFUSED(pspinsim_init(0, NULL, &conf));
    }
    pspin_conf_t conf;
    memset(&conf, 0, sizeof conf);
    REFUSED(pspinsim_init(0, NULL, &conf));
    WORKS(pspinsim_init(0, NULL, NULL));
    REFUSED(pspinsim_init(0, NULL, NULL));
    REFUSED(pspinsim_run_tick(NULL));

    /* Images. */
    REFUSED(add(with_handler(0)));
    REFUSED(spin_find_handler_by_name(NULL, "echo_ph", &addr, &size));
    REFUSED(spin_find_handler_by_name(argv[1], NULL, &addr, &size));
    REFUSED(spin_find_handler_by_name("/nowhere", "echo_ph", &addr, &size));
    REFUSED(spin_find_handler_by_name(argv[2], "echo_ph", &addr, &size));
    for (int at = 2; at < argc; at++) REFUSED(spin_find_handler_by_name(argv[at], "echo_ph", &addr, &size));
    if (addr != 0x1234 || size != 55) line_of_first = __LINE__;
    WORKS(spin_find_handler_by_name(argv[1], "no_such_handler", &addr, &size));
    WORKS(spin_find_handler_by_name(argv[1], "", &addr, &size));
    if (addr != 0x1234 || size != 55) line_of_first = __LINE__;
    WORKS(spin_find_handler_by_name(argv[1], "echo_ph", NULL, NULL));
    WORKS(spin_find_handler_by_name(argv[1], "echo_ph", &addr, &size));
    if (addr < PROG_MEM_START || size != 4096) line_of_first = __LINE__;
    for (int at = 2; at < argc; at++) REFUSED(spin_find_handler_by_name(argv[at], "echo_ph", &addr, &size));

    /* Contexts. */
    const uint32_t nowhere[] = {1, addr + 1, 0x1c000000, PROG_MEM_START + PROG_MEM_SIZE, UINT32_MAX};
    for (int at = 0; at < 5; at++) {
        spin_ec_t bad = with_handler(nowhere[at]);
        REFUSED(add(bad));
        bad.hh_addr = bad.ph_addr, bad.ph_addr = 0;
        REFUSED(add(bad));
        bad.th_addr = bad.hh_addr, bad.hh_addr = 0;
        REFUSED(add(bad));
    }
    const uint32_t ranges[][2] = {{0, 1}, {L2_HND_BUFF_START - 1, 2}, {L2_HND_BUFF_START, L2_HND_BUFF_SIZE + 1},
                                  {L2_HND_BUFF_START + L2_HND_BUFF_SIZE, 1}, {UINT32_MAX, 2}, {L2_HND_BUFF_START + 1, UINT32_MAX}};
    for (int at = 0; at < 6; at++) {
        spin_ec_t bad = with_handler(addr);
        bad.handler_mem_addr = ranges[at][0];
        bad.handler_mem_size = ranges[at][1];
        REFUSED(add(bad));
    }
    const uint32_t scratchpads[][2] = {{0, L1_SCRATCHPAD_SIZE + 1}, {L1_SCRATCHPAD_SIZE, 1}, {UINT32_MAX, 2}, {4, UINT32_MAX}};
    for (int at = 0; at < 4; at++) {
        for (int cluster = 0; cluster < NUM_CLUSTERS; cluster++) {
            spin_ec_t bad = with_handler(addr);
            bad.scratchpad_addr[cluster] = scratchpads[at][0];
            bad.scratchpad_size[cluster] = scratchpads[at][1];
            REFUSED(add(bad));
        }
    }

    /* Packets. */
    ec = with_handler(addr);
    REFUSED(pspinsim_packet_add(NULL, 0, packet, 64, 64, 1, 0, 0));
    REFUSED(pspinsim_packet_add(&ec, 0, NULL, 64, 64, 1, 0, 0));
    REFUSED(pspinsim_packet_add(&ec, 0, packet, 0, 0, 1, 0, 0));
    REFUSED(pspinsim_packet_add(&ec, 0, packet, MAX_PKT_BYTES + 1, 64, 1, 0, 0));
    REFUSED(pspinsim_packet_add(&ec, 0, packet, SIZE_MAX, SIZE_MAX, 1, 0, 0));

    /* NIC memory. */
    REFUSED(spin_nicmem_write(L2_HND_BUFF_START, NULL, 4, NULL));
    REFUSED(spin_nicmem_read(L2_HND_BUFF_START, NULL, 4, NULL));
    REFUSED(spin_nicmem_write(L2_HND_BUFF_START, packet, SIZE_MAX, NULL));
    REFUSED(spin_nicmem_read(L2_HND_BUFF_START + L2_HND_BUFF_SIZE - 3, packet, 4, NULL));
    REFUSED(spin_nicmem_write(PROG_MEM_START, packet, 4, NULL));
    REFUSED(spin_nicmem_write(0, packet, 4, NULL));
    REFUSED(spin_nicmem_read(UINT32_MAX, packet, 4, NULL));
    WORKS(spin_nicmem_read(PROG_MEM_START, packet, 4, NULL));

    /* Traces. */
    REFUSED(pspinsim_packet_trace_read(NULL, argv[2]));
    REFUSED(pspinsim_packet_trace_read(argv[2], NULL));
    for (int at = 2; at < argc; at++) REFUSED(pspinsim_packet_trace_read(argv[at], argv[2]));

    /* It goes on all the same. */
    REFUSED(pspinsim_run()); /* nobody said that no more packets come */
    WORKS(pspinsim_packet_add(&ec, UINT32_MAX, packet, 64, SIZE_MAX, 255, UINT32_MAX, UINT64_MAX));
    WORKS(add(ec));
    WORKS(pspinsim_packet_eos());
    REFUSED(pspinsim_packet_add(&ec, 0, packet, 64, 64, 1, 0, 0)); /* somebody did */
    WORKS(pspinsim_run());
    WORKS(pspinsim_run());
    WORKS(pspinsim_run_tick(&done));
    if (done != 1) line_of_first = __LINE__;
    WORKS(pspinsim_fini());
    REFUSED(pspinsim_fini());
    WORKS(pspinsim_init(0, NULL, NULL));
    WORKS(pspinsim_fini());
    if (line_of_first != 0) {
        fprintf(stderr, "abuse.c:%d\n", line_of_first);
        return 1;
    }
    printf("all %d calls as they should be\n", calls);
    return 0;
}
