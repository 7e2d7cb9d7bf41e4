/* What the ICMP and the UDP ping have in common: frames that are sent back, with or without the host. */
#include <handler.h>
#include <packets.h>
#include <pspin.h>
#include <pspin_rt.h>
#include <spin_conf.h>
#include <spin_dma.h>
#include <spin_host.h>
#include <util.h>

#define SWAP(a, b, type) \
    do {                 \
        type tmp_ = (a); \
        (a) = (b);       \
        (b) = tmp_;      \
    } while (0)

/* Hands the frame to the host program, which writes its answer over it. */
static inline uint32_t through_host(handler_args_t *args, uint32_t length) {
    spin_cmd_t dma, back;
    fpspin_flag_t answer;
    for (int c = 0; c < NB_CLUSTERS; c++) {
        if (args->task->scratchpad_size[c] != 4096) return 0;
    }
    spin_dma_to_host(HOST_PLD_ADDR(args), args->task->pkt_mem, length, false, &dma);
    spin_cmd_wait(dma);
    answer = fpspin_host_req(args, length);
    spin_dma_from_host(HOST_PLD_ADDR(args), args->task->pkt_mem, answer.len, false, &back);
    spin_cmd_wait(back);
    return answer.len;
}
