/* A driver with packets of its own, host memory of its own, and a say in everything that happens. It needs handlers like dma_ph:
 * what host memory has is added to the packet's bytes, which go to host memory 4096 bytes behind. It adds a packet for each that is
 * released, and looks at all results.
 *
 *   own_driver IMAGE HANDLER PACKETS */
#include <pspinsim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 200
#define WINDOW 4
#define HOST_ADDR 0x7fff12345671ULL

static uint8_t host_memory[8192];
static spin_ec_t ec;
static uint32_t wanted, added, released, wrong, accesses;
static uint64_t last_feedback;
static int kept = 77;

static void check(int result) {
    if (result != SPIN_SUCCESS) exit(EXIT_FAILURE);
}

/* The program's own packets. */
static void fill_packet(uint32_t number, uint8_t *packet) {
    for (uint32_t at = 0; at < SIZE; at++) packet[at] = (uint8_t)(number * 7 + at);
}

static void add_packet(void) {
    uint8_t packet[SIZE];
    if (added == wanted) return;
    fill_packet(added, packet);
    check(pspinsim_packet_add(&ec, 5, packet, SIZE, SIZE, 1, 3, added));
    added++;
    if (added == wanted) check(pspinsim_packet_eos());
}

/* Bytes of host memory by the address that handlers know; anything else is a mistake of theirs. */
static uint8_t *in_host_memory(uint64_t addr, size_t len) {
    if (addr < HOST_ADDR || addr - HOST_ADDR > sizeof host_memory - len || len > 64) {
        wrong++;
        return NULL;
    }
    return host_memory + (addr - HOST_ADDR);
}

static void host_write(uint64_t addr, uint8_t *data, size_t len) {
    uint8_t *to = in_host_memory(addr, len);
    if (to != NULL) memcpy(to, data, len);
}

static void host_read(uint64_t addr, uint8_t *data, size_t len) {
    uint8_t *from = in_host_memory(addr, len);
    if (from != NULL) memcpy(data, from, len);
}

static void feedback(uint64_t user, uint64_t nic_arrival, uint64_t pspin_arrival, uint64_t end) {
    uint8_t expected[SIZE];
    fill_packet((uint32_t)user, expected);
    for (uint32_t at = 0; at < SIZE; at++) expected[at] = (uint8_t)(expected[at] + host_memory[at]);
    if (memcmp(expected, host_memory + 4096, SIZE) != 0) wrong++;
    if (user != released || nic_arrival >= pspin_arrival || pspin_arrival >= end || end <= last_feedback) wrong++;
    if (pspinsim_run() != SPIN_ERR) wrong++; /* a callback cannot */
    last_feedback = end;
    released++;
    add_packet();
}

static void write_complete(void *user) { accesses += user == &kept ? 1 : 1000; }
static void read_complete(void *user) { accesses += user == NULL ? 10 : 1000; }
static void sent(uint8_t *data, size_t len) {
    (void)data, (void)len;
    wrong++;
}

int main(int argc, char **argv) {
    if (argc != 4) return EXIT_FAILURE;
    wanted = (uint32_t)atoi(argv[3]);
    check(pspinsim_init(argc, argv, NULL));
    spin_nic_addr_t addr = 0;
    size_t size = 0;
    check(spin_find_handler_by_name(argv[1], argv[2], &addr, &size));
    ec = (spin_ec_t){.host_mem_addr = HOST_ADDR, .host_mem_size = sizeof host_memory, .ph_addr = addr, .ph_size = (uint32_t)size};
    ec.handler_mem_addr = L2_HND_BUFF_START + 4096;
    ec.handler_mem_size = 4096;
    check(pspinsim_cb_set_pkt_feedback(feedback));
    check(pspinsim_cb_set_pkt_out(sent));
    check(pspinsim_cb_set_pcie_slv_write(host_write));
    check(pspinsim_cb_set_pcie_slv_read(host_read));
    check(pspinsim_cb_set_pcie_mst_write_completion(write_complete));
    check(pspinsim_cb_set_pcie_mst_read_completion(read_complete));
    for (uint32_t at = 0; at < SIZE; at++) host_memory[at] = (uint8_t)(at * at);
    uint8_t before[SIZE] = {1}, after[SIZE];
    check(spin_nicmem_write(ec.handler_mem_addr, before, SIZE, &kept));
    for (uint32_t number = 0; number < WINDOW; number++) add_packet();
    uint8_t done = 0;
    uint64_t ticks = 0;
    for (; !done; ticks++) check(pspinsim_run_tick(&done));
    check(spin_nicmem_read(ec.handler_mem_addr, after, SIZE, NULL));
    if (memcmp(after, host_memory, SIZE) != 0) wrong++;
    check(pspinsim_run_tick(&done));
    while (!done) check(pspinsim_run_tick(&done));
    /* The last feedback was in the last of those cycles. */
    printf("released %u wrong %u accesses %u on time %d\n", released, wrong, accesses, ticks * 1000 > last_feedback);
    check(pspinsim_fini());
    return wrong == 0 && released == wanted && accesses == 11 ? EXIT_SUCCESS : EXIT_FAILURE;
}
