/* The simulation: packets in, callbacks out. Everything runs on the calling thread, in virtual time: a clock of 1 GHz that counts
 * handlers' instructions, so all runs of a program are the same.
 *
 * Callbacks may call all functions but pspinsim_init, pspinsim_run, pspinsim_run_tick and pspinsim_fini. They may not throw. */
#ifndef PSPINSIM_H
#define PSPINSIM_H

#include <stddef.h>
#include <stdint.h>

#include "spin.h"
#include "spin_hw_conf.h"

/* The inbound engine. Depths of buffers are accepted and not modelled, here and below. */
typedef struct ni_conf {
    uint32_t axi_aw_buffer;
    uint32_t axi_w_buffer;
    uint32_t axi_b_buffer;
} ni_conf_t;

/* The outbound engine. */
typedef struct no_conf {
    uint32_t axi_ar_buffer;
    uint32_t axi_r_buffer;
    double network_G;               /* nanoseconds that the network takes for a byte */
    uint32_t max_pkt_size;          /* longer sends become several packets */
    uint32_t max_network_queue_len; /* packets that may wait for the network */
} no_conf_t;

/* The host's bus, as handlers use it. */
typedef struct pcie_slv_conf {
    uint32_t axi_aw_buffer;
    uint32_t axi_w_buffer;
    uint32_t axi_ar_buffer;
    uint32_t axi_b_buffer;
    uint32_t axi_r_buffer;
    uint32_t pcie_L; /* nanoseconds of latency */
    double pcie_G;   /* nanoseconds for a byte */
} pcie_slv_conf_t;

typedef struct pspin_conf {
    const char *slm_files_path; /* accepted and not looked at */
    ni_conf_t ni_conf;
    no_conf_t no_conf;
    pcie_slv_conf_t pcie_slv_conf;
} pspin_conf_t;

SPIN_STATIC_ASSERT(offsetof(no_conf_t, network_G) == 8 && sizeof(no_conf_t) == 24);
SPIN_STATIC_ASSERT(offsetof(pcie_slv_conf_t, pcie_L) == 20 && offsetof(pcie_slv_conf_t, pcie_G) == 24);
SPIN_STATIC_ASSERT(sizeof(void *) != 8 || offsetof(pspin_conf_t, ni_conf) == 8);
SPIN_STATIC_ASSERT(sizeof(void *) != 8 || offsetof(pspin_conf_t, no_conf) == 24);
SPIN_STATIC_ASSERT(sizeof(void *) != 8 || offsetof(pspin_conf_t, pcie_slv_conf) == 48);
SPIN_STATIC_ASSERT(sizeof(void *) != 8 || sizeof(pspin_conf_t) == 80);

/* A packet has left. */
typedef void (*pkt_out_cb_t)(uint8_t *data, size_t len);
/* A handler writes host memory, or reads it: at most 64 bytes at a time. What is to be read is filled in; it is zero before. */
typedef void (*pcie_slv_write_cb_t)(uint64_t addr, uint8_t *data, size_t len);
typedef void (*pcie_slv_read_cb_t)(uint64_t addr, uint8_t *data, size_t len);
/* An access of spin_nicmem_write or spin_nicmem_read is complete. */
typedef void (*pcie_mst_write_cb_t)(void *user);
typedef void (*pcie_mst_read_cb_t)(void *user);
/* A packet is released: once for each. Times are picoseconds from the beginning: it came to the NIC, it was in NIC memory, it was
 * released. */
typedef void (*pkt_feedback_cb_t)(uint64_t user_ptr, uint64_t nic_arrival_time, uint64_t pspin_arrival_time, uint64_t feedback_time);

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `conf` with the defaults. */
int pspinsim_default_conf(pspin_conf_t *conf);

/* Begins a simulation: one at a time. NULL for `conf`: the defaults. The arguments are not looked at. */
int pspinsim_init(int argc, char **argv, pspin_conf_t *conf);

/* Runs until all packets are through. It is an error if more could come: pspinsim_packet_eos was not called. */
int pspinsim_run(void);

/* Runs for one cycle. `done`: all packets are through, and no more come. */
int pspinsim_run_tick(uint8_t *done);

/* Ends the simulation and prints the statistics. Callbacks, image and NIC memory are forgotten. */
int pspinsim_fini(void);

/* Adds all packets of a trace, after which no more come. Lines of the first file:
 * msgid,hh,hh_size,ph,ph_size,th,th_size,hmem,hmem_size,pkt_size,xfer_size,eom,wait. The second has the packets' bytes. Such a program
 * need not name an image: the environment variable PSPIN_IMAGE does. */
int pspinsim_packet_trace_read(const char *pkt_file_path, const char *data_file_path);

/* Adds a packet, whose bytes are copied. `pkt_l1_len` of them are copied to L1. Packets of messages whose ids are equal modulo 256 are
 * handled in order. `eom`: its message's last. The next packet comes `wait_cycles` after this one. */
int pspinsim_packet_add(spin_ec_t *ec, uint32_t msgid, uint8_t *pkt_data, size_t pkt_len, size_t pkt_l1_len, uint8_t eom,
                        uint32_t wait_cycles, uint64_t user_ptr);

/* No more packets come: to add one is an error from then on. */
int pspinsim_packet_eos(void);

/* Callbacks; NULL for none. */
int pspinsim_cb_set_pkt_out(pkt_out_cb_t cb);
int pspinsim_cb_set_pcie_slv_write(pcie_slv_write_cb_t cb);
int pspinsim_cb_set_pcie_slv_read(pcie_slv_read_cb_t cb);
int pspinsim_cb_set_pcie_mst_write_completion(pcie_mst_write_cb_t cb);
int pspinsim_cb_set_pcie_mst_read_completion(pcie_mst_read_cb_t cb);
int pspinsim_cb_set_pkt_feedback(pkt_feedback_cb_t cb);

#ifdef __cplusplus
}
#endif

#endif
