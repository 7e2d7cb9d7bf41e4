/* Answers echo requests: the handler swaps the addresses, and the host program makes the rest of the reply. Without DO_HOST, the
 * handler makes all of it. */
#include "ping.h"

typedef struct {
    uint8_t type;
    uint8_t code;
    uint16_t checksum;
    uint32_t rest_of_header;
} __attribute__((__packed__)) icmp_hdr_t;

typedef struct {
    eth_hdr_t eth_hdr;
    ip_hdr_t ip_hdr;
    icmp_hdr_t icmp_hdr;
} __attribute__((__packed__)) hdr_t;

__handler__ void icmp_ping_ph(handler_args_t *args) {
    task_t *task = args->task;
    hdr_t *hdrs = (hdr_t *)task->pkt_mem;
    uint32_t start = cycles();
    uint16_t ip_len = ntohs(hdrs->ip_hdr.length);
    uint32_t pkt_len = ip_len + sizeof(eth_hdr_t);
    spin_cmd_t put;

    if (!fpspin_check_host_mem(args)) {
        printf("host memory is too small\n");
        return;
    }
    SWAP(hdrs->eth_hdr.dest, hdrs->eth_hdr.src, mac_addr_t);
    SWAP(hdrs->ip_hdr.dest_id, hdrs->ip_hdr.source_id, uint32_t);
#ifdef DO_HOST
    pkt_len = through_host(args, pkt_len);
#else
    hdrs->icmp_hdr.type = 0;
    hdrs->icmp_hdr.checksum = 0;
    hdrs->icmp_hdr.checksum = ip_checksum((uint8_t *)&hdrs->icmp_hdr, ip_len - sizeof(ip_hdr_t));
#endif
    spin_send_packet(hdrs, pkt_len, &put);
    spin_cmd_wait(put);
    push_counter(&__host_data.counters[0], cycles() - start);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, icmp_ping_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
