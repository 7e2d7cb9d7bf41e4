/* What the headers say, to be compared with the library. */
#include <pspinsim.h>
#include <stdio.h>

#define SHOW(name) printf("%s %llu\n", #name, (unsigned long long)(name))

SPIN_STATIC_ASSERT(sizeof(mem_addr_t) == 4 && sizeof(mem_size_t) == 4 && sizeof(host_addr_t) == 8);

int main(void) {
    /* <stdlib.h> comes with spin.h. */
    free(malloc(1));
    pspinsim_set_fmq_prio(1, 2);
    SHOW(NUM_CLUSTERS);
    SHOW(NUM_CORES);
    SHOW(C_MSGID_WIDTH);
    SHOW(PCIE_START_ADDR);
    SHOW(L1_CLUSTER_BASE);
    SHOW(L1_CLUSTER_STRIDE);
    SHOW(L1_SIZE);
    SHOW(L1_CLUSTER_ACTUAL_MEM_SIZE);
    SHOW(L1_RUNTIME_OFFSET);
    SHOW(L1_RUNTIME_SIZE);
    SHOW(L1_PKT_BUFF_OFFSET);
    SHOW(L1_PKT_BUFF_SIZE);
    SHOW(L1_SCRATCHPAD_SIZE);
    SHOW(L1_SCRATCHPAD_OFFSET);
    SHOW(L2_HND_BUFF_START);
    SHOW(L2_HND_BUFF_SIZE);
    SHOW(L2_PKT_BUFF_START);
    SHOW(L2_PKT_BUFF_SIZE);
    SHOW(PROG_MEM_START);
    SHOW(PROG_MEM_SIZE);
    SHOW(MAX_PKT_BYTES);
    pspin_conf_t conf;
    if (pspinsim_default_conf(&conf) != SPIN_SUCCESS) return 1;
    const ni_conf_t ni = conf.ni_conf;
    const no_conf_t no = conf.no_conf;
    const pcie_slv_conf_t pcie = conf.pcie_slv_conf;
    printf("ni %u %u %u\n", ni.axi_aw_buffer, ni.axi_w_buffer, ni.axi_b_buffer);
    printf("no %u %u %g %u %u\n", no.axi_ar_buffer, no.axi_r_buffer, no.network_G, no.max_pkt_size, no.max_network_queue_len);
    printf("pcie %u %u %u %u %u %u %g\n", pcie.axi_aw_buffer, pcie.axi_w_buffer, pcie.axi_ar_buffer, pcie.axi_b_buffer,
           pcie.axi_r_buffer, pcie.pcie_L, pcie.pcie_G);
    return 0;
}
