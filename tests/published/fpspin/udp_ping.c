/* Sends each datagram back. With DO_HOST, the host program turns its payload round first. The handlers of messages are there, and do
 * not run: the host program's ruleset ends no message. */
#include "ping.h"

static volatile uint32_t headers __attribute__((section(".l2_handler_data")));

__handler__ void udp_ping_hh(handler_args_t *args) { amo_add(&headers, 1); }

__handler__ void udp_ping_ph(handler_args_t *args) {
    task_t *task = args->task;
    pkt_hdr_t *hdrs = (pkt_hdr_t *)task->pkt_mem;
    uint32_t length = ntohs(hdrs->ip_hdr.length) + sizeof(eth_hdr_t);
    spin_cmd_t put;

    SWAP(hdrs->eth_hdr.dest, hdrs->eth_hdr.src, mac_addr_t);
    SWAP(hdrs->ip_hdr.dest_id, hdrs->ip_hdr.source_id, uint32_t);
    SWAP(hdrs->udp_hdr.dst_port, hdrs->udp_hdr.src_port, uint16_t);
    hdrs->udp_hdr.checksum = 0;
#ifdef DO_HOST
    length = through_host(args, length);
#endif
    spin_send_packet(task->pkt_mem, length, &put);
    spin_cmd_wait(put);
    push_counter(&__host_data.counters[0], length);
    push_counter(&__host_data.counters[1], headers);
}

__handler__ void udp_ping_th(handler_args_t *args) { amo_add(&headers, 100); }

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {udp_ping_hh, udp_ping_ph, udp_ping_th};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = (void *)&headers;
}
