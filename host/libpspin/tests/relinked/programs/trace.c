/* Runs a trace, and prints what handlers send: length, first byte, and byte 28 if there is one. */
#include <pspinsim.h>
#include <stdio.h>

static void sent(uint8_t *data, size_t len) { printf("sent %zu %u %u\n", len, data[0], len > 28 ? data[28] : 0); }

int main(int argc, char **argv) {
    if (argc != 3 || pspinsim_init(argc, argv, NULL) != SPIN_SUCCESS) return 1;
    pspinsim_cb_set_pkt_out(sent);
    if (pspinsim_packet_trace_read(argv[1], argv[2]) != SPIN_SUCCESS) return 1;
    if (pspinsim_run() != SPIN_SUCCESS) return 1;
    return pspinsim_fini() != SPIN_SUCCESS;
}
