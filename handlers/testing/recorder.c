/* Sends a record of each run, then performs the action that the packet requests for that handler. engine/tests/checker reads the
 * records and knows the requests; traffic.rs and judge.rs there have the layouts too.
 *
 * -DNO_HEADER and -DNO_COMPLETION leave handlers out; -DONE_ORDER numbers the records of all clusters together. */
#define SPIN_VERDICTS
#define SPIN_VERDICTS_OPTIONAL
#include <spin.h>

#define CONTEXTS 16
#define PAYLOAD 42

enum action { NOTHING, FAULT_UNSEEN, FAULT, LOOP, REPORT, FINISH, SEND, WAIT, SET, BUSY };

/* Request in a packet. */
typedef struct order {
    uint8_t end, context;
    uint16_t flow;
    uint8_t actions[3];
    uint8_t verdicts[2];
    uint8_t spare[3];
    uint32_t message, sequence, instance, word;
} order_t;

/* Frame that reports a run. */
typedef struct record {
    uint8_t addresses[12];
    uint16_t type;
    uint8_t kind, context;
    uint16_t flow, cluster;
    uint32_t message, sequence, instance, run;
} record_t;

/* By context and cluster: number of records, and the word by which its tasks communicate. */
SPIN_HANDLER_DATA uint32_t runs[CONTEXTS][SPIN_MAX_CLUSTERS];
SPIN_HANDLER_DATA volatile uint32_t words[CONTEXTS][SPIN_MAX_CLUSTERS];

#ifdef ONE_ORDER
#define NUMBERED_WITH(cluster) 0
#else
#define NUMBERED_WITH(cluster) (cluster)
#endif

static void record(const handler_args_t *args, const order_t *order, char kind) {
    record_t record = {
        .addresses = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2},
        .type = spin_htons(0x88b5), /* EtherType for local experiments: IEEE 802, 9.2.4 */
        .kind = (uint8_t)kind,
        .context = order->context,
        .flow = order->flow,
        .cluster = (uint16_t)args->cluster_id,
        .message = order->message,
        .sequence = order->sequence,
        .instance = order->instance,
    };
    record.run = __atomic_fetch_add(&runs[order->context % CONTEXTS][NUMBERED_WITH(args->cluster_id)], 1, __ATOMIC_RELAXED);
    spin_cmd_t handle;
    spin_send_packet(&record, sizeof record, &handle);
}

static void act(const handler_args_t *args, const order_t *order, uint8_t action) {
    const task_t *task = args->task;
    volatile uint32_t *word = &words[order->context % CONTEXTS][args->cluster_id];
    spin_cmd_t handle;
    switch (action) {
    case FAULT: *(volatile uint32_t *)0 = 0; break;
    case LOOP: for (;;) __asm__ volatile("");
    case REPORT: spin_report_error(order->instance); break;
    case FINISH: (void)*spin_reg(SPIN_REG_DOORBELL); break;
    /* the L2 copy is sent unchanged: the received frame itself, if no other handler needs it */
    case SEND: spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size, &handle); break;
    case WAIT:
        while (*word < order->word) {}
        record(args, order, 'E');
        break;
    case SET:
        if (*word < order->word) *word = order->word;
        break;
    case BUSY:
        for (uint32_t turns = 2000; turns > 0; turns--) __asm__ volatile("");
        break;
    default: break;
    }
}

static spin_verdict_t run(const handler_args_t *args, char kind, uint32_t stage) {
    const task_t *task = args->task;
    order_t order;
    if (task->pkt_mem_size < PAYLOAD + sizeof order) return SPIN_VERDICT_SUCCESS;
    __builtin_memcpy(&order, (const uint8_t *)task->pkt_mem + PAYLOAD, sizeof order);
    uint8_t action = order.actions[stage];
    if (action == FAULT_UNSEEN) *(volatile uint32_t *)0 = 0;
    record(args, &order, kind);
    act(args, &order, action);
    return stage < 2 ? (spin_verdict_t)order.verdicts[stage] : SPIN_VERDICT_SUCCESS;
}

#ifndef NO_HEADER
spin_verdict_t header_handler(handler_args_t *args) { return run(args, 'H', 0); }
#endif
spin_verdict_t payload_handler(handler_args_t *args) { return run(args, 'P', 1); }
#ifndef NO_COMPLETION
spin_verdict_t completion_handler(handler_args_t *args) { return run(args, 'C', 2); }
#endif
