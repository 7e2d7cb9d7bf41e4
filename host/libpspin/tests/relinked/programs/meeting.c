/* Eight packets whose handlers wait for each other, then for the program, which lets them go on when all are there. */
#include <pspinsim.h>
#include <stdio.h>
#include <stdlib.h>

#define HOST_ADDR 0x1000
#define MEMORY L2_HND_BUFF_START

static uint32_t met, told, released;

static void check(int result) {
    if (result != SPIN_SUCCESS) exit(EXIT_FAILURE);
}

static void host_write(uint64_t addr, uint8_t *data, size_t len) {
    uint32_t go = 5;
    if (len != 8) exit(EXIT_FAILURE);
    if (addr == HOST_ADDR && data[0] == 8) {
        met++;
        check(spin_nicmem_write(MEMORY + 0x1000 + 12, &go, sizeof go, NULL));
    } else if (data[0] == go) {
        told++;
    }
}

static void feedback(uint64_t user, uint64_t nic_arrival, uint64_t pspin_arrival, uint64_t end) {
    (void)user, (void)nic_arrival, (void)pspin_arrival, (void)end;
    released++;
}

int main(int argc, char **argv) {
    uint8_t packet[64] = {0};
    spin_nic_addr_t addr = 0;
    size_t size = 0;
    if (argc != 2) return EXIT_FAILURE;
    check(pspinsim_init(argc, argv, NULL));
    pspinsim_cb_set_pcie_slv_write(host_write);
    pspinsim_cb_set_pkt_feedback(feedback);
    check(spin_find_handler_by_name(argv[1], "meet_ph", &addr, &size));
    spin_ec_t ec = {.ph_addr = addr, .handler_mem_addr = MEMORY + 0x1000, .handler_mem_size = 4096, .host_mem_addr = HOST_ADDR};
    for (uint32_t number = 0; number < 8; number++)
        check(pspinsim_packet_add(&ec, 1, packet, sizeof packet, sizeof packet, number == 7, 500, number));
    check(pspinsim_packet_eos());
    check(pspinsim_run());
    printf("met %u told %u released %u\n", met, told, released);
    check(pspinsim_fini());
    return EXIT_SUCCESS;
}
