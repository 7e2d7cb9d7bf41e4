/* Takes SLMP messages: payloads go where they belong in host memory behind the HPUs' pages. What is to be acknowledged is; the last
 * packet when the host program has taken the message. */
#include <handler.h>
#include <packets.h>
#include <spin_host.h>

#define SLMP_EOM 0x8000
#define SLMP_SYN 0x4000
#define SLMP_ACK 0x2000
/* Offset of messages in host memory. */
#define MESSAGE (CORE_COUNT * PAGE_SIZE)

static void acknowledge(slmp_pkt_hdr_t *hdrs) {
    spin_cmd_t cmd;
    mac_addr_t mac = hdrs->eth_hdr.dest;
    hdrs->eth_hdr.dest = hdrs->eth_hdr.src;
    hdrs->eth_hdr.src = mac;
    uint32_t id = hdrs->ip_hdr.dest_id;
    hdrs->ip_hdr.dest_id = hdrs->ip_hdr.source_id;
    hdrs->ip_hdr.source_id = id;
    uint16_t port = hdrs->udp_hdr.dst_port;
    hdrs->udp_hdr.dst_port = hdrs->udp_hdr.src_port;
    hdrs->udp_hdr.src_port = port;
    hdrs->ip_hdr.length = htons(sizeof(ip_hdr_t) + sizeof(udp_hdr_t) + sizeof(slmp_hdr_t));
    hdrs->udp_hdr.length = htons(sizeof(udp_hdr_t) + sizeof(slmp_hdr_t));
    hdrs->udp_hdr.checksum = 0;
    hdrs->ip_hdr.checksum = 0;
    hdrs->ip_hdr.checksum = ip_checksum(&hdrs->ip_hdr, sizeof(ip_hdr_t));
    hdrs->slmp_hdr.flags |= htons(SLMP_ACK);
    spin_send_packet(hdrs, sizeof *hdrs, &cmd);
}

static uint32_t payload_length(const slmp_pkt_hdr_t *hdrs) {
    return (uint32_t)ntohs(hdrs->udp_hdr.length) - sizeof(udp_hdr_t) - sizeof(slmp_hdr_t);
}

__handler__ void receive_ph(handler_args_t *args) {
    task_t *task = args->task;
    slmp_pkt_hdr_t *hdrs = (slmp_pkt_hdr_t *)task->pkt_mem;
    if (task->pkt_mem_size < sizeof *hdrs) return;
    uint32_t length = payload_length(hdrs), offset = ntohl(hdrs->slmp_hdr.pkt_off);
    uint32_t room = task->host_mem_size - MESSAGE;
    if (length > task->pkt_mem_size - sizeof *hdrs || offset > room || length > room - offset) {
        printf("a packet of %u bytes at %u does not fit\n", (unsigned)length, (unsigned)offset);
        return;
    }
    spin_cmd_t cmd;
    if (length > 0) {
        spin_dma_to_host(HOST_ADDR(args) + MESSAGE + offset, (uint32_t)(uintptr_t)(hdrs + 1), length, false, &cmd);
        spin_cmd_wait(cmd);
    }
    push_counter(&__host_data.counters[0], length);
    uint16_t flags = ntohs(hdrs->slmp_hdr.flags);
    if ((flags & SLMP_SYN) && !(flags & SLMP_EOM)) acknowledge(hdrs);
}

/* On the last packet, when all others are where they belong. */
__handler__ void receive_th(handler_args_t *args) {
    slmp_pkt_hdr_t *hdrs = (slmp_pkt_hdr_t *)args->task->pkt_mem;
    if (args->task->pkt_mem_size < sizeof *hdrs) return;
    fpspin_host_req(args, ntohl(hdrs->slmp_hdr.pkt_off) + payload_length(hdrs));
    acknowledge(hdrs);
    push_counter(&__host_data.counters[1], 1);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = receive_ph;
    *th = receive_th;
    *handler_mem = NULL;
}
