/* The simulation: packets go in, callbacks report the results. Everything runs on the calling thread in virtual time. The clock of
 * 1 GHz counts handlers' instructions, so all runs of a program are identical.
 *
 * Callbacks may call all functions except pspinsim_init, pspinsim_run, pspinsim_run_tick and pspinsim_fini. They must not throw. */
#ifndef PSPINSIM_H
#define PSPINSIM_H

#include <stddef.h>
#include <stdint.h>

#include "spin.h"
#include "spin_hw_conf.h"

/* The inbound engine. Buffer depths, here and below, are accepted but not modelled. */
typedef struct ni_conf {
    uint32_t axi_aw_buffer;
    uint32_t axi_w_buffer;
    uint32_t axi_b_buffer;
} ni_conf_t;

/* The outbound engine. */
typedef struct no_conf {
    uint32_t axi_ar_buffer;
    uint32_t axi_r_buffer;
    double network_G;               /* nanoseconds per byte on the network */
    uint32_t max_pkt_size;          /* maximum bytes of a packet; longer sends are split */
    uint32_t max_network_queue_len; /* maximum number of packets that wait for the network */
} no_conf_t;

/* The host's bus for handlers' accesses. */
typedef struct pcie_slv_conf {
    uint32_t axi_aw_buffer;
    uint32_t axi_w_buffer;
    uint32_t axi_ar_buffer;
    uint32_t axi_b_buffer;
    uint32_t axi_r_buffer;
    uint32_t pcie_L; /* nanoseconds of latency */
    double pcie_G;   /* nanoseconds per byte */
} pcie_slv_conf_t;

typedef struct pspin_conf {
    const char *slm_files_path; /* accepted, not used */
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

/* Called when a packet leaves. */
typedef void (*pkt_out_cb_t)(uint8_t *data, size_t len);
/* Called when a handler writes or reads host memory, at most 64 bytes at a time. The read callback fills in `data`, which is zero
 * before. */
typedef void (*pcie_slv_write_cb_t)(uint64_t addr, uint8_t *data, size_t len);
typedef void (*pcie_slv_read_cb_t)(uint64_t addr, uint8_t *data, size_t len);
/* Called when an access of spin_nicmem_write or spin_nicmem_read is complete. */
typedef void (*pcie_mst_write_cb_t)(void *user);
typedef void (*pcie_mst_read_cb_t)(void *user);
/* Called once for each packet when it is released. Times are picoseconds since the start: arrival at the NIC, arrival in NIC memory,
 * release. */
typedef void (*pkt_feedback_cb_t)(uint64_t user_ptr, uint64_t nic_arrival_time, uint64_t pspin_arrival_time, uint64_t feedback_time);

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `conf` with the defaults. */
int pspinsim_default_conf(pspin_conf_t *conf);

/* Starts a simulation, one at a time. With NULL for `conf` it uses the defaults. The arguments are ignored. */
int pspinsim_init(int argc, char **argv, pspin_conf_t *conf);

/* Runs until all packets are processed. Fails if more packets could be added: pspinsim_packet_eos was not called. */
int pspinsim_run(void);

/* Runs for one cycle. `done` is set when all packets are processed and no more can be added. */
int pspinsim_run_tick(uint8_t *done);

/* Ends the simulation and prints the statistics. Discards callbacks, image and NIC memory. */
int pspinsim_fini(void);

/* Adds all packets of a trace and ends the stream. Lines of the first file:
 * msgid,hh,hh_size,ph,ph_size,th,th_size,hmem,hmem_size,pkt_size,xfer_size,eom,wait. The second file has the packets' bytes. Such a
 * program need not name an image: the environment variable PSPIN_IMAGE names it. */
int pspinsim_packet_trace_read(const char *pkt_file_path, const char *data_file_path);

/* Adds a packet and copies its bytes. `pkt_l1_len` of them are copied to L1. Packets of messages whose ids are equal modulo 256 are
 * processed in order. `eom` marks the last packet of its message. The next packet arrives `wait_cycles` after this one. */
int pspinsim_packet_add(spin_ec_t *ec, uint32_t msgid, uint8_t *pkt_data, size_t pkt_len, size_t pkt_l1_len, uint8_t eom,
                        uint32_t wait_cycles, uint64_t user_ptr);

/* Ends the stream: adding a packet afterwards is an error. */
int pspinsim_packet_eos(void);

/* Sets the priority of a message queue, as the OSMOSIS extension does. Accepted, not modelled: queues are served round-robin. */
void pspinsim_set_fmq_prio(uint32_t id, uint8_t prio);

/* Set callbacks; NULL removes one. */
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
