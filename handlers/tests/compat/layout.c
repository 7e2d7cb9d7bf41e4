/* The numbers that handlers written for PsPIN and FPsPIN were compiled with, as the headers have them. */
#include <handler.h>
#include <packets.h>

#define SAME(what, number) _Static_assert((what) == (number), #what " is not " #number)
/* Of task_t, which begins at offset 8 of the driver page. */
#define TASK(field, at, bytes)                          \
    SAME(offsetof(task_t, field) + SPIN_REG_TASK, at);  \
    SAME(sizeof(((task_t *)0)->field), bytes)

SAME(SPIN_DRIVER_BASE, 0x1b205000);
SAME(SPIN_REG_TASK, 0x08);
TASK(handler_mem, 0x08, 4);
TASK(handler_mem_size, 0x0c, 4);
TASK(pkt_mem, 0x10, 4);
TASK(pkt_mem_size, 0x14, 4);
TASK(scratchpad, 0x18, 4 * NB_CLUSTERS);
TASK(scratchpad_size, 0x28, 4 * NB_CLUSTERS);
TASK(host_mem_high, 0x38, 4);
TASK(host_mem_low, 0x3c, 4);
TASK(host_mem_size, 0x40, 4);
TASK(l2_pkt_mem, 0x44, 4);
TASK(home_cluster_id, 0x48, 4);
TASK(flow_id, 0x4c, 4);
SAME(sizeof(task_t), 0x48);
SAME(_Alignof(task_t), 1);

SAME(offsetof(handler_args_t, task), 0);
SAME(offsetof(handler_args_t, hpu_gid), 4);
SAME(offsetof(handler_args_t, cluster_id), 8);
SAME(offsetof(handler_args_t, hpu_id), 12);
SAME(sizeof(handler_args_t), 16);

SAME(SPIN_REG_DOORBELL, 0x50);
SAME(SPIN_REG_ERROR, 0x54);
SAME(SPIN_REG_COMMAND_ISSUE, 0x80);
SAME(SPIN_REG_COMMAND_WAIT, 0x84);
SAME(SPIN_REG_COMMAND_TEST, 0x88);
SAME(SPIN_REG_COMMAND_INFO, 0x8c);
SAME(SPIN_REG_COMMAND_WORDS, 0x90);
SAME(SPIN_COMMANDS_IN_FLIGHT, 4);
SAME(SPIN_INFO_DMA, 0 << 1);
SAME(SPIN_INFO_SEND, 1 << 1);
SAME(SPIN_INFO_HOST_DIRECT, 2 << 1);
SAME(SPIN_INFO_EVENT, 1);
SAME(SPIN_DMA_FROM_HOST, 0);
SAME(SPIN_DMA_TO_HOST, 1);

SAME(SPIN_CLUSTER_DMA_BASE, 0x1b204400);
SAME(SPIN_CLUSTER_DMA_SOURCE, 0x00);
SAME(SPIN_CLUSTER_DMA_SOURCE_HIGH, 0x04);
SAME(SPIN_CLUSTER_DMA_DESTINATION, 0x08);
SAME(SPIN_CLUSTER_DMA_DESTINATION_HIGH, 0x0c);
SAME(SPIN_CLUSTER_DMA_BYTES, 0x10);
SAME(SPIN_CLUSTER_DMA_LAUNCH, 0x18);
SAME(SPIN_CLUSTER_DMA_DONE, 0x20);
SAME(SPIN_CLUSTER_DMA_CONFIG, 0x28);
SAME(SPIN_END_OF_COMPUTATION, 0x1b200000);
SAME(SPIN_STDOUT_BASE, 0x1a104000);

SAME(SPIN_OK, 0);
SAME(SPIN_FAIL, 1);
SAME(NB_CORES, 8);
SAME(NUM_CLUSTER_HPUS, 8);
SAME(CORE_COUNT, 8 * NB_CLUSTERS);
SAME(sizeof(handler_fn), 4);
SAME(sizeof(spin_lock_t), 4);
SAME(offsetof(spin_rw_lock_t, glock), 0);
SAME(offsetof(spin_rw_lock_t, num_readers), 4);

SAME(sizeof(ip_hdr_t), 20);
SAME(offsetof(ip_hdr_t, tos), 1);
SAME(offsetof(ip_hdr_t, length), 2);
SAME(offsetof(ip_hdr_t, identification), 4);
SAME(offsetof(ip_hdr_t, offset), 6);
SAME(offsetof(ip_hdr_t, ttl), 8);
SAME(offsetof(ip_hdr_t, protocol), 9);
SAME(offsetof(ip_hdr_t, checksum), 10);
SAME(offsetof(ip_hdr_t, source_id), 12);
SAME(offsetof(ip_hdr_t, dest_id), 16);
SAME(sizeof(udp_hdr_t), 8);
SAME(offsetof(udp_hdr_t, src_port), 0);
SAME(offsetof(udp_hdr_t, dst_port), 2);
SAME(offsetof(udp_hdr_t, length), 4);
SAME(offsetof(udp_hdr_t, checksum), 6);

#ifdef SPIN_ABI_PSPIN
SAME(NB_CLUSTERS, 4);
SAME(sizeof(pkt_hdr_t), 28);
SAME(offsetof(pkt_hdr_t, ip_hdr), 0);
SAME(offsetof(pkt_hdr_t, udp_hdr), 20);
#else
#include <spin_host.h>
SAME(NB_CLUSTERS, 2);
SAME(sizeof(pkt_hdr_t), 42);
SAME(offsetof(pkt_hdr_t, eth_hdr), 0);
SAME(offsetof(pkt_hdr_t, ip_hdr), 14);
SAME(offsetof(pkt_hdr_t, udp_hdr), 34);
SAME(sizeof(mac_addr_t), 6);
SAME(offsetof(eth_hdr_t, dest), 0);
SAME(offsetof(eth_hdr_t, src), 6);
SAME(offsetof(eth_hdr_t, length), 12);
SAME(sizeof(slmp_hdr_t), 10);
SAME(offsetof(slmp_hdr_t, flags), 0);
SAME(offsetof(slmp_hdr_t, msg_id), 2);
SAME(offsetof(slmp_hdr_t, pkt_off), 6);
SAME(sizeof(slmp_pkt_hdr_t), 52);
SAME(offsetof(slmp_pkt_hdr_t, slmp_hdr), 42);
SAME(DMA_ALIGN, 64);
SAME(PAGE_SIZE, 4096);
SAME(offsetof(fpspin_flag_t, dma_id), 0);
SAME(offsetof(fpspin_flag_t, len), 1);
SAME(offsetof(fpspin_flag_t, hpu_id), 5);
SAME(sizeof(struct perf_counter), 8);
SAME(offsetof(struct perf_counter, count), 4);
SAME(sizeof(struct host_data), 8 * CORE_COUNT + 8 * 16);
#endif

void payload_handler(handler_args_t *args) { (void)args; }
