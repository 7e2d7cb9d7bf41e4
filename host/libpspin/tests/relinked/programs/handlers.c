/* Handlers by which drivers find out what the library does. */
#include <handler.h>
#include <packets.h>

static uint64_t host(const task_t *task) { return (uint64_t)task->host_mem_high << 32 | task->host_mem_low; }

static void tell(const task_t *task, uint32_t at, uint64_t value) {
    spin_cmd_t handle;
    spin_write_to_host(host(task) + 8 * at, value, &handle);
}

/* Sends the packet back as it is in L1, after turning its payload's first byte over. */
__handler__ void echo_ph(handler_args_t *args) {
    task_t *task = args->task;
    spin_cmd_t handle;
    uint8_t *packet = task->pkt_mem;
    if (task->pkt_mem_size > 28) packet[28] ^= 0xff;
    spin_send_packet(packet, task->pkt_mem_size, &handle);
    spin_cmd_wait(handle);
}

/* Tell the host in which order they run: stage, flow, and how often on this context's scratchpad of the home cluster. */
static void count(handler_args_t *args, uint64_t stage) {
    task_t *task = args->task;
    volatile uint32_t *counter = task->scratchpad[task->home_cluster_id];
    uint64_t before = (uint32_t)amo_add(counter, 1);
    tell(task, 0, stage << 56 | (uint64_t)task->flow_id << 32 | before);
}
__handler__ void count_hh(handler_args_t *args) { count(args, 1); }
__handler__ void count_ph(handler_args_t *args) { count(args, 2); }
__handler__ void count_th(handler_args_t *args) { count(args, 3); }

/* Where everything is. */
__handler__ void where_ph(handler_args_t *args) {
    task_t *task = args->task;
    tell(task, 0, (uint64_t)(uint32_t)task->handler_mem << 32 | task->handler_mem_size);
    for (uint32_t cluster = 0; cluster < NB_CLUSTERS; cluster++)
        tell(task, 1 + cluster, (uint64_t)(uint32_t)task->scratchpad[cluster] << 32 | task->scratchpad_size[cluster]);
    tell(task, 5, (uint64_t)args->cluster_id << 48 | (uint64_t)task->home_cluster_id << 32 | task->pkt_mem_size);
    tell(task, 6, task->host_mem_size);
}

/* Keeps a word in each memory that is its context's, and tells what was there. The last words too: they are the context's own. */
__handler__ void keep_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint32_t mark = ((ip_hdr_t *)task->pkt_mem)->source_id + 1;
    for (uint32_t cluster = 0; cluster < NB_CLUSTERS; cluster++) {
        volatile uint32_t *words = task->scratchpad[cluster];
        volatile uint32_t *last = words + task->scratchpad_size[cluster] / 4 - 1;
        tell(task, cluster, (uint64_t)words[0] << 32 | *last);
        words[0] = mark;
        *last = mark;
    }
    volatile uint32_t *words = task->handler_mem, *last = words + task->handler_mem_size / 4 - 1;
    tell(task, NB_CLUSTERS, (uint64_t)words[0] << 32 | *last);
    words[0] = mark;
    *last = mark;
}

/* Reads the first word behind its scratchpad, which is the next context's. */
__handler__ void spy_ph(handler_args_t *args) {
    task_t *task = args->task;
    volatile uint32_t *words = task->scratchpad[args->cluster_id];
    tell(task, 0, words[task->scratchpad_size[args->cluster_id] / 4]);
}

/* Host memory to handler memory, from there to the packet, and all back to the host, by odd addresses. */
__handler__ void dma_ph(handler_args_t *args) {
    task_t *task = args->task;
    spin_cmd_t handle;
    uint32_t length = task->pkt_mem_size;
    spin_dma_from_host(host(task), (uint32_t)task->handler_mem, length, 0, &handle);
    spin_cmd_wait(handle);
    uint8_t *from = task->handler_mem, *packet = task->pkt_mem;
    for (uint32_t at = 0; at < length; at++) packet[at] += from[at];
    spin_dma_to_host(host(task) + 4096, (uint32_t)packet, length, 1, &handle);
    spin_cmd_wait(handle);
}

/* Sends what lies in L2, in two halves. */
__handler__ void halves_ph(handler_args_t *args) {
    task_t *task = args->task;
    spin_cmd_t handles[2];
    uint8_t *packet = task->l2_pkt_mem;
    uint32_t half = task->pkt_mem_size / 2;
    spin_send_packet(packet, half, &handles[0]);
    spin_send_packet(packet + half, half, &handles[1]);
}

__handler__ void home_ph(handler_args_t *args) { printf("home %u\n", (unsigned)args->task->home_cluster_id); }

__handler__ void print_ph(handler_args_t *args) { printf("flow %u\n", (unsigned)args->task->flow_id); }

/* Takes longer than packets take to come. */
__handler__ void slow_ph(handler_args_t *args) {
    (void)args;
    for (int round = 0; round < 20000; round++) __asm__ volatile("");
}

__handler__ void null_ph(handler_args_t *args) {
    (void)args;
    *(volatile uint32_t *)0 = 1;
}

/* All packets of a message wait for each other, and for the program: the word behind says that they may go on. */
__handler__ void meet_ph(handler_args_t *args) {
    volatile uint32_t *words = args->task->handler_mem;
    amo_add(&words[1], 1);
    while (words[1] < 8) {}
    if (amo_add(&words[2], 1) == 7) tell(args->task, 0, 8);
    while (words[3] == 0) {}
    tell(args->task, 1, words[3]);
}

/* Takes a lock that is held. */
__handler__ void locked_ph(handler_args_t *args) {
    spin_lock_t *lock = (spin_lock_t *)args->task->handler_mem + 8;
    *lock = 1;
    spin_lock_lock(lock);
}

/* Takes a lock, counts as if it were alone, and gives it back. */
__handler__ void lock_ph(handler_args_t *args) {
    spin_lock_t *lock = (spin_lock_t *)args->task->handler_mem + 8;
    volatile uint32_t *count = (volatile uint32_t *)lock + 1;
    spin_lock_lock(lock);
    uint32_t before = *count;
    *count = before + 1;
    spin_lock_unlock(lock);
    tell(args->task, 0, before);
}

__handler__ void endless_ph(handler_args_t *args) {
    (void)args;
    for (;;) __asm__ volatile("");
}

/* More commands and more bytes than anybody wants. */
__handler__ void flood_ph(handler_args_t *args) {
    task_t *task = args->task;
    spin_cmd_t handle;
    for (;;) spin_send_packet(task->handler_mem, task->handler_mem_size, &handle);
}

static uint32_t initialised;
__attribute__((section(".l2_handler_data"))) volatile uint32_t shared[4] = {11, 22, 33, 44};

__handler__ void data_ph(handler_args_t *args) {
    tell(args->task, 0, (uint64_t)initialised << 32 | shared[1]);
    shared[1]++;
}

/* Names one of them; drivers find the others. */
void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    initialised++;
    *hh = NULL;
    *ph = echo_ph;
    *th = NULL;
    *handler_mem = NULL;
}

/* Puts more than a packet has room for. */
__handler__ void put_ph(handler_args_t *args) {
    spin_cmd_t handle;
    spin_rdma_put(7, args->task->handler_mem, 3000, &handle);
    spin_cmd_wait(handle);
}
