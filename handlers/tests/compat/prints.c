/* What prints and asserts: always, with LOG, with CHECK_ASSERTS. The first payload byte is 'g' (103) or another, for a good or a bad assertion. */
#include <handler.h>
#include <packets.h>
#include <util.h>

static volatile uint32_t reached;

__handler__ void prints_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint8_t *payload = (uint8_t *)task->pkt_mem + sizeof(pkt_hdr_t);
    uint64_t host = (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
    reached = 1;
/* The macros give file and line. */
#line 100 "prints.c"
    SPIN_PRINTF("%d and %s\n", 3, "four");
    SPIN_PRINTF("without arguments\n");
    DEBUG_PRINT("with LOG: %d\n", 5);
    DEBUG_PRINT("nothing else\n");
    ASSERT(++reached && *payload == 103);
    if (reached) spin_write_to_host(host, reached, false);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = prints_ph;
    *th = NULL;
    *handler_mem = NULL;
}
