/* Handlers that know the machine by its addresses alone. LINK: bytes of the link layer's header that they see. CLUSTERS: the machine's. */
typedef unsigned int u32;
typedef unsigned char u8;

/* Field by field at the published offsets. */
struct task { u8 *handler_mem; u32 handler_mem_size; u8 *packet; u32 packet_size; u32 *scratchpad[4]; u32 scratchpad_size[4];
              u32 host_high, host_low, host_size; u8 *l2_packet; u32 home, flow; } __attribute__((packed));
struct args { struct task *task; u32 gid, cluster, hpu; };

u32 counted;
u32 initialised;
volatile u32 loaded = 0x12345680;
__attribute__((section(".l2_handler_data"))) volatile u32 in_handler_memory[16];
__attribute__((section(".data_tiny_l1"))) volatile u32 in_l1 = 7;
/* Each cluster's own, at both addresses. */
__attribute__((section(".data_tiny_l1"))) volatile u8 ids[8] = {0};

static void print(struct args *args, const char *text) {
    volatile u8 *out = (u8 *)(0x1a104000 + (args->hpu << 3) + (args->cluster << 7));
    while (*text) *out = (u8)*text++;
}

static u32 send(const void *data, u32 length) {
    u32 handle;
    __asm__ volatile("li t0, 0x1b205000\n"
                     "sw zero, 0x90(t0)\n"
                     "sw zero, 0x94(t0)\n"
                     "sw %1, 0x98(t0)\n"
                     "sw zero, 0x9c(t0)\n"
                     "sw %2, 0xa0(t0)\n"
                     "li t1, 2\n"
                     "sw t1, 0x8c(t0)\n"
                     "lw %0, 0x80(t0)\n"
                     : "=&r"(handle)
                     : "r"(data), "r"(length)
                     : "t0", "t1", "memory");
    return handle;
}

static u32 to_host(struct task *task, const void *data, u32 length) {
    u32 handle;
    __asm__ volatile("li t0, 0x1b205000\n"
                     "sw %1, 0x90(t0)\n"
                     "sw %2, 0x94(t0)\n"
                     "sw %3, 0x98(t0)\n"
                     "sw %4, 0x9c(t0)\n"
                     "li t1, 1\n"
                     "sw t1, 0xa0(t0)\n"
                     "sw zero, 0x8c(t0)\n"
                     "lw %0, 0x80(t0)\n"
                     : "=&r"(handle)
                     : "r"(task->host_low), "r"(task->host_high), "r"(data), "r"(length)
                     : "t0", "t1", "memory");
    return handle;
}

/* A copy by the engine of a cluster, as the public header makes it: {source, 0, destination, 0, bytes}, then a read that launches it. Returns
 * whether it has another id than the one before, and is complete. */
__attribute__((noinline)) static u32 copy_by(u32 cluster, const volatile void *from, volatile void *to, u32 bytes) {
    volatile u32 *engine = (volatile u32 *)(0x10201800 + cluster * 0x400000);
    engine[0] = (u32)from;
    engine[1] = 0;
    engine[2] = (u32)to;
    engine[3] = 0;
    engine[4] = bytes;
    engine[10] = 0;
    u32 before = engine[8], id = engine[6];
    return id != before && engine[8] >= id && engine[0] == (u32)from;
}

/* By an engine at an address that the compiler knows. */
static void copy_by_the_second(const volatile void *from, volatile void *to) {
    *(volatile u32 *)0x10601800 = (u32)from;
    *(volatile u32 *)0x10601804 = 0;
    *(volatile u32 *)0x10601808 = (u32)to;
    *(volatile u32 *)0x1060180c = 0;
    *(volatile u32 *)0x10601810 = 4;
    u32 id = *(volatile u32 *)0x10601818;
    while (*(volatile u32 *)0x10601820 < id) {}
}

static u32 cycles(void) {
    register u32 number __asm__("a7") = 1;
    register u32 value __asm__("a0");
    __asm__ volatile("ecall" : "=r"(value) : "r"(number));
    return value;
}

void payload(struct args *args) {
    struct task *task = args->task;
    u32 start = cycles();
    counted++;
    __asm__ volatile("amoadd.w zero, %1, (%0)" ::"r"(in_handler_memory), "r"(1) : "memory");
    u32 core;
    __asm__("mv %0, tp" : "=r"(core));
    if ((core & 31) != args->hpu || (core >> 5) != args->cluster) *(volatile u32 *)0 = 1;
    /* the page of the driver itself, at its own address */
    if (*(u8 *volatile *)0x1b205010 != task->packet || cycles() - start > 100000) *(volatile u32 *)4 = 1;
    print(args, "seen\n");
    u32 handle = send(task->packet, task->packet_size);
    *(volatile u32 *)0x1b205084 = handle;
    ids[args->hpu]++;
    if (*(volatile u8 *)(0x10000000 + 0x400000 * args->cluster + ((u32)&ids[args->hpu] & 0xffff)) != ids[args->hpu]) *(volatile u32 *)12 = 1;
    volatile u32 *copied = task->scratchpad[args->cluster];
    for (u32 cluster = 0; cluster < CLUSTERS; cluster++) {
        in_handler_memory[1] = 100 + cluster;
        if (!copy_by(cluster, &in_handler_memory[1], &copied[cluster], 4)) *(volatile u32 *)16 = 1;
        if (copied[cluster] != 100 + cluster) *(volatile u32 *)20 = 1;
    }
    in_handler_memory[1] = 200;
    copy_by_the_second(&in_handler_memory[1], &copied[0]);
    if (copied[0] != 200) *(volatile u32 *)24 = 1;
    u32 told[] = {counted, loaded, (u32)task->handler_mem, task->handler_mem_size, in_handler_memory[0], in_l1, initialised};
    handle = to_host(task, told, sizeof told);
    *(volatile u32 *)0x1b205088 = handle;
    if (!*(volatile u32 *)0x1b205088) *(volatile u32 *)8 = 1;
}

/* Ends by the doorbell. */
void completion(struct args *args) {
    (void)args;
    (void)*(volatile u32 *)0x1b205050;
    *(volatile u32 *)0 = 1;
}

#ifndef LTO
void init_handlers(void **hh, void **ph, void **th, void **handler_mem) {
    initialised++;
    *hh = (void *)0;
    *ph = (void *)payload;
    *th = (void *)completion;
    *handler_mem = (void *)in_handler_memory;
}
#endif
