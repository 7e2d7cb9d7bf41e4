/* Puts values in order: a packet says in its first words what to do, with which number and value. Values that come too early wait in a
 * list, onto which they are pushed by load-reserved and store-conditional. */
#include <handler.h>
#include <pspin.h>

#define INSERT 1
#define SLOTS 1024

typedef struct node {
    uint32_t next; /* address; 0: the end */
    uint32_t number, value;
} node_t;

typedef struct {
    spin_lock_t lock;
    volatile uint32_t expected;
    volatile uint32_t early; /* address of the first node */
    volatile int32_t used;
    node_t nodes[SLOTS];
} list_t;

static void deliver(uint64_t host_address, uint32_t number, uint32_t value) {
    spin_cmd_t handle;
    spin_write_to_host(host_address + 8 * (uint64_t)number, value, &handle);
    spin_cmd_wait(handle);
}

static void push(list_t *list, uint32_t number, uint32_t value) {
    uint32_t first;
    node_t *node = &list->nodes[amo_add(&list->used, 1) % SLOTS];
    node->number = number;
    node->value = value;
    do {
        first = load_reserved(&list->early);
        node->next = first;
        asm_mem_fence();
    } while (store_conditional(&list->early, (uint32_t)node));
}

/* Delivers what waits and is expected now; pushes the others back. */
static bool deliver_early(list_t *list, uint64_t host_address) {
    uint32_t at = amo_swap((volatile uint32_t *)&list->early, 0);
    bool delivered = false;
    while (at) {
        node_t *node = (node_t *)at;
        at = node->next;
        if (node->number == list->expected) {
            deliver(host_address, node->number, node->value);
            list->expected++;
            delivered = true;
        } else {
            push(list, node->number, node->value);
        }
    }
    return delivered;
}

__handler__ void ooo_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint32_t *words = (uint32_t *)task->pkt_mem;
    list_t *list = (list_t *)task->handler_mem;
    uint64_t host_address = task->host_mem_high;
    host_address = (host_address << 32) | task->host_mem_low;

    if (words[0] != INSERT) return;
    push(list, words[1], words[2]);
    spin_lock_lock(&list->lock);
    while (deliver_early(list, host_address)) {}
    spin_lock_unlock(&list->lock);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {NULL, ooo_ph, NULL};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
