/* What becomes of a command whose handler faults. The first payload byte says what to do after it was issued:
 * 'd' reads a register of the third cluster's DMA engine, 'f' stores to address 0, 'i' executes no instruction, 'l' loops for ever, 'r'
 * reports an error. */
#include <handler.h>

__handler__ void fault_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint8_t *payload;
    uint32_t length;
#ifdef SPIN_ABI_FPSPIN
    GET_IP_UDP_PLD((uint8_t *)task->l2_pkt_mem + 14, payload, length);
#else
    GET_IP_UDP_PLD(task->l2_pkt_mem, payload, length);
#endif
    if (length == 0) return;
    spin_cmd_t handle;
    spin_send_packet(task->l2_pkt_mem, task->pkt_mem_size, &handle);
    switch (*payload) {
    case 'd': (void)*(volatile uint32_t *)(0x10201820 + 2 * 0x400000); break;
    case 'f': *(volatile uint32_t *)0 = 1; break;
    case 'i': __asm__ volatile(".2byte 0"); break;
    case 'l': for (;;) __asm__ volatile("");
    case 'r': *spin_reg(SPIN_REG_ERROR) = 5; break;
    default: break;
    }
}

static volatile uint32_t completions;

__handler__ void fault_th(handler_args_t *args) {
    spin_cmd_t handle;
    uint64_t host = (uint64_t)args->task->host_mem_high << 32 | args->task->host_mem_low;
    spin_write_to_host(host, ++completions, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = fault_ph;
    *th = fault_th;
    *handler_mem = NULL;
}
