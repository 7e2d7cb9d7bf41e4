/* Has the host program look at each datagram, and sends what it made of it. */
#include <handler.h>
#include <packets.h>
#include <spin_host.h>

__handler__ void echo_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint32_t start = cycles(), length = task->pkt_mem_size;
    uint32_t packet = (uint32_t)(uintptr_t)task->pkt_mem;
    spin_cmd_t cmd;
    if (!fpspin_check_host_mem(args) || length < sizeof(pkt_hdr_t)) return;
    spin_dma_to_host(HOST_PLD_ADDR(args), packet, length, false, &cmd);
    spin_cmd_wait(cmd);
    fpspin_flag_t answer = fpspin_host_req(args, length);
    if (answer.len > length) return;
    spin_dma_from_host(HOST_PLD_ADDR(args), packet, answer.len, false, &cmd);
    spin_cmd_wait(cmd);
    spin_send_packet(task->pkt_mem, answer.len, &cmd);
    push_counter(&__host_data.counters[0], cycles() - start);
    push_counter(&__host_data.counters[1], length);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = echo_ph;
    *th = NULL;
    *handler_mem = NULL;
}
