/* Counts 10 for each packet, and what handler memory holds at word 2000; answers with its queue in the first byte of the payload. */
#include <handler.h>
#include <packets.h>
#include <spin_host.h>

__handler__ void control_ph(handler_args_t *args) {
    task_t *task = args->task;
    pkt_hdr_t *hdrs = (pkt_hdr_t *)task->pkt_mem;
    volatile uint32_t *words = (volatile uint32_t *)task->handler_mem;
    push_counter(&__host_data.counters[5], 10 + words[2000]);
    mac_addr_t mac = hdrs->eth_hdr.dest;
    hdrs->eth_hdr.dest = hdrs->eth_hdr.src;
    hdrs->eth_hdr.src = mac;
    *(uint8_t *)(hdrs + 1) = (uint8_t)task->flow_id;
    spin_cmd_t cmd;
    spin_send_packet(hdrs, task->pkt_mem_size, &cmd);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = control_ph;
    *th = NULL;
    *handler_mem = NULL;
}
