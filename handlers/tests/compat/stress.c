/* Counters under each kind of lock and atomic, and a list that is pushed to by LR/SC: shared by all HPUs, in L2 and in the L1 of
 * cluster 0. The completion handler writes them to host memory. */
#include <handler.h>

#define NODES 4096
#define ROUNDS 8

static struct shared {
    spin_lock_t lock;
    uint32_t guarded;
    spin_rw_lock_t rw;
    uint32_t written, torn;
    uint32_t futex, waited;
    int32_t added;
    uint32_t swapped, exclusive, largest;
    uint32_t head;
    int32_t taken;
    int32_t runs;
} shared;
static uint32_t next[NODES];

/* Node numbers from 1, 0 is the end of the list. */
static void push(volatile uint32_t *head, uint32_t node) {
    uint32_t first;
    do {
        first = load_reserved(head);
        next[node - 1] = first;
    } while (store_conditional(head, node));
}

static void in_l1(task_t *task) {
    volatile uint32_t *words = (volatile uint32_t *)task->scratchpad[0];
    spin_lock_t *lock = &words[0];
    for (int i = 0; i < ROUNDS; i++) {
        amo_add((volatile int32_t *)&words[1], 1);
        spin_lock_lock(lock);
        words[2] = words[2] + 1;
        spin_lock_unlock(lock);
    }
}

__handler__ void stress_ph(handler_args_t *args) {
    for (uint32_t i = 0; i < ROUNDS; i++) {
        spin_lock_lock(&shared.lock);
        shared.guarded++;
        spin_lock_unlock(&shared.lock);

        spin_rw_lock_w_lock(&shared.rw);
        shared.written++;
        shared.torn++;
        spin_rw_lock_w_unlock(&shared.rw);
        spin_rw_lock_r_lock(&shared.rw);
        bool torn = *(volatile uint32_t *)&shared.written != *(volatile uint32_t *)&shared.torn;
        spin_rw_lock_r_unlock(&shared.rw);
        if (torn) *spin_reg(SPIN_REG_ERROR) = 1;

        futex_lock(&shared.futex);
        shared.waited++;
        futex_unlock(&shared.futex);

        amo_add(&shared.added, 3);
        amo_xor(&shared.exclusive, 1u << i);
        uint32_t number = (uint32_t)amo_add(&shared.taken, 1) + 1;
        amo_maxu(&shared.largest, number);
        if (number <= NODES) push(&shared.head, number);
        uint32_t before;
        do before = *(volatile uint32_t *)&shared.swapped;
        while (compare_and_swap(&shared.swapped, before, before + 1) != 0);
    }
    in_l1(args->task);
    amo_add(&shared.runs, 1);
}

/* Of a message of its own, when all others are done: {words..., length of the list, words in L1}. */
__handler__ void stress_th(handler_args_t *args) {
    task_t *task = args->task;
    uint32_t length, *words = (uint32_t *)task->scratchpad[0];
    int32_t runs;
    /* The task may be parked in this loop, and others run meanwhile. */
    do {
        runs = *(volatile int32_t *)&shared.runs;
        length = 0;
        for (uint32_t at = shared.head; at != 0 && length <= NODES; at = next[at - 1]) length++;
    } while (runs != *(volatile int32_t *)&shared.runs);
    uint32_t told[] = {(uint32_t)runs, shared.guarded, shared.written, shared.waited, (uint32_t)shared.added, shared.exclusive,
                       shared.largest, shared.swapped, length, words[1], words[2]};
    spin_cmd_t handle;
    uint64_t host = (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
    spin_dma_to_host(host, (uint32_t)(uintptr_t)told, sizeof told, false, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = stress_ph;
    *th = stress_th;
    *handler_mem = (void *)&shared;
}
