/* A request to the host program, and a counter. The packet's first payload byte says who it is: 'r' asks the host, 'h' carries its
 * answer: the HPU, and the doubleword for its flag. */
#include <handler.h>
#include <packets.h>
#include <spin_host.h>
#include <string.h>

__handler__ void host_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint8_t *payload;
    uint32_t length, start = cycles();
    GET_IP_UDP_PLD((uint8_t *)task->pkt_mem + sizeof(eth_hdr_t), payload, length);
    if (!fpspin_check_host_mem(args) || length < 16) return;
    if (*payload == 'h') {
        uint64_t answer;
        memcpy(&answer, payload + 8, sizeof answer);
        __host_data.flag[payload[1]] = answer;
        return;
    }
    spin_cmd_t handle;
    spin_dma_to_host(HOST_PLD_ADDR(args), (uint32_t)(uintptr_t)payload, length, false, &handle);
    fpspin_flag_t answer = fpspin_host_req(args, length);
    push_counter(&__host_data.counters[0], cycles() - start);
    push_counter(&__host_data.counters[15], answer.len);
    /* what the host is to see: its answer, the counters, that they lie where NIC memory begins */
    uint32_t told[] = {answer.dma_id, answer.len, answer.hpu_id, __host_data.counters[15].sum, __host_data.counters[15].count,
                       __host_data.counters[0].sum, (uint32_t)(uintptr_t)&__host_data, HPU_ID(args)};
    spin_dma_to_host(HOST_ADDR(args) + CORE_COUNT * PAGE_SIZE, (uint32_t)(uintptr_t)told, sizeof told, false, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = host_ph;
    *th = NULL;
    *handler_mem = NULL;
}
