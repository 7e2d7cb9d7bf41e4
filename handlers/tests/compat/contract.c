/* What published handlers rely on, in the order of the tables that list it: names, types, and what happens. Written from those tables.
 * Lines that do not hold are written to host memory: {checks, failures, lines...}. The packet is a UDP datagram with 8 bytes. */
#include <handler.h>
#include <hal/pulp.h>
#include <libaxidma.h>
#include <packets.h>
#include <spin_conf.h>
#include <spin_dma.h>
#include <util.h>
#ifdef SPIN_ABI_FPSPIN
#include <pspin_rt.h>
#include <spin_host.h>
#endif

#include "checks.h"

/* Two types are the same. */
#define TYPE(what, type) static_assert(__builtin_types_compatible_p(__typeof__(what), type), #what " is no " #type)
#define NUMBER(what, value) static_assert((what) == (value), #what " is not " #value)

/* pspin.h */
NUMBER(MEM_ALIGNMENT, 4);
NUMBER(ALIGN_UP(5, 4), 8);
NUMBER(ALIGN_UP(8, 4), 8);
NUMBER(DMA_MAX_XFER_SIZE, 32768);
NUMBER(DMA_NULL, 0);
TYPE(dma_t, uint32_t);
TYPE(futex_t, volatile uint32_t);
TYPE(&rt_time_wait_cycles, void (*)(unsigned));
TYPE(&asm_mem_fence, void (*)(void));
TYPE(&load_reserved, uint32_t (*)(const volatile uint32_t *));
TYPE(&store_conditional, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(compare_and_swap(NULL, 0, 0), int32_t);
TYPE(&amo_swap, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(&amo_and, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(&amo_or, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(&amo_xor, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(&amo_maxu, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(&amo_minu, uint32_t (*)(volatile uint32_t *, uint32_t));
TYPE(&amo_add, int32_t (*)(volatile int32_t *, int32_t));
TYPE(&amo_max, int32_t (*)(volatile int32_t *, int32_t));
TYPE(&amo_min, int32_t (*)(volatile int32_t *, int32_t));
TYPE(&amo_store, void (*)(volatile uint32_t *, uint32_t));
TYPE(&futex_init, void (*)(futex_t *));
TYPE(&futex_try_lock, int (*)(futex_t *));
TYPE(&futex_lock, int (*)(futex_t *));
TYPE(&futex_lock_s, int (*)(futex_t *));
TYPE(&futex_unlock, void (*)(futex_t *));

/* handler.h */
TYPE(handler_fn, void (*)(handler_args_t *));
TYPE(&spin_cmd_test, int (*)(spin_cmd_t, bool *));
TYPE(&spin_dma_test, int (*)(spin_dma_t, uint32_t *));
/* Members of task_t and handler_args_t by type; layout.c has their places. */
#define MEMBER(of, name, type) TYPE(((of *)0)->name, type)
MEMBER(task_t, handler_mem, void *);
MEMBER(task_t, handler_mem_size, size_t);
MEMBER(task_t, pkt_mem, void *);
MEMBER(task_t, pkt_mem_size, size_t);
MEMBER(task_t, scratchpad, void *[NB_CLUSTERS]);
MEMBER(task_t, scratchpad_size, size_t[NB_CLUSTERS]);
MEMBER(task_t, host_mem_high, uint32_t);
MEMBER(task_t, host_mem_low, uint32_t);
MEMBER(task_t, host_mem_size, size_t);
MEMBER(task_t, l2_pkt_mem, void *);
MEMBER(task_t, home_cluster_id, uint32_t);
MEMBER(task_t, flow_id, uint32_t);
MEMBER(handler_args_t, task, task_t *);
MEMBER(handler_args_t, hpu_gid, uint32_t);
MEMBER(handler_args_t, cluster_id, uint32_t);
MEMBER(handler_args_t, hpu_id, uint32_t);
TYPE(&init_handlers, void (*)(handler_fn *, handler_fn *, handler_fn *, void **));
NUMBER(SPIN_OK, 0);
NUMBER(SPIN_FAIL, 1);

/* spin_conf.h */
NUMBER(NB_CORES, 8);
NUMBER(CORE_COUNT, NB_CLUSTERS * 8);
NUMBER(NUM_CLUSTER_HPUS, 8);
NUMBER(PKT_SIZE, 1024);
static_assert(PacketQueueLength > 0, "a queue");
#ifdef SPIN_ABI_FPSPIN
NUMBER(NB_CLUSTERS, 2);
#else
NUMBER(NB_CLUSTERS, 4);
#endif

/* hwsched.h */
NUMBER(HWSCHED_HANDLER_FUN_ADDR, 0x1b205000);
NUMBER(HWSCHED_ERROR, 0x1b205054);
NUMBER(CMD_ISSUE, 0x1b205080);
NUMBER(CMD_WAIT, 0x1b205084);
NUMBER(CMD_TEST, 0x1b205088);
NUMBER(CMD_INFO, 0x1b20508c);
NUMBER(CMD_WORD0, 0x1b205090);
NUMBER(CMD_WORD6, 0x1b2050a8);

#ifdef SPIN_ABI_FPSPIN
/* packets.h, pspin_rt.h, pspin.h and spin_host.h of FPsPIN */
NUMBER(MKEOM, 0x8000);
NUMBER(MKSYN, 0x4000);
NUMBER(MKACK, 0x2000);
NUMBER(EOM(0xc001) != 0, true);
NUMBER(SYN(0x8000) != 0, false);
NUMBER(ACK(0x2000) != 0, true);
NUMBER(bswap_16(0x1234), 0x3412);
NUMBER(bswap_32(0x12345678), 0x78563412);
NUMBER(htons(0x1234), 0x3412);
NUMBER(ntohl(0x12345678), 0x78563412);
TYPE(&ip_checksum, uint16_t (*)(void *, size_t));
NUMBER(PAGE_SIZE, 4096);
NUMBER(PSPIN_ECALL_CYCLES, 1);
/* Numbers of the privileged specification. */
NUMBER(PULP_CSR_MSTATUS, 0x300);
NUMBER(PULP_CSR_MTVEC, 0x305);
NUMBER(PULP_CSR_MEPC, 0x341);
NUMBER(PULP_CSR_MCAUSE, 0x342);
NUMBER(PULP_CSR_MTVAL, 0x343);
NUMBER(PULP_CSR_MCYCLE, 0xb00);
NUMBER(PULP_CSR_MINSTRET, 0xb02);
NUMBER(PULP_CSR_MHARTID, 0xf14);
NUMBER(MAX_COUNTERS, 16);
NUMBER(sizeof(struct perf_counter), 8);
NUMBER(sizeof(((struct host_data *)0)->flag), 8 * CORE_COUNT);
TYPE(((struct host_data *)0)->flag[0], uint64_t);
TYPE(((struct host_data *)0)->counters, struct perf_counter[MAX_COUNTERS]);
TYPE(__host_data, volatile struct host_data);
TYPE(cycles(), uint32_t);
TYPE(&push_counter, void (*)(volatile struct perf_counter *, uint32_t));
NUMBER(sizeof(fpspin_flag_t), 8);
TYPE(((fpspin_flag_t *)0)->dma_id, uint8_t);
TYPE(((fpspin_flag_t *)0)->len, uint32_t);
TYPE(((fpspin_flag_t *)0)->hpu_id, uint16_t);
TYPE(((fpspin_flag_t *)0)->data, uint64_t);
NUMBER(DMA_BUS_WIDTH, 512);
NUMBER(DMA_ALIGN, 64);
TYPE(dma_idx, volatile uint8_t[NUM_CLUSTER_HPUS]);

static void fpspin(handler_args_t *args) {
    slmp_pkt_hdr_t hdrs = {.udp_hdr.length = htons(8 + 10 + 77)};
    CHECK(SLMP_PAYLOAD_LEN(&hdrs) == 77);
    uint32_t now, then;
    ecall_0(PSPIN_ECALL_CYCLES, then);
    ecall(PSPIN_ECALL_CYCLES, 0, 0, 0, 0, 0, 0, 0, now);
    CHECK(now > then);
    ecall_1(PSPIN_ECALL_CYCLES, 0, then);
    CHECK(then > now && cycles() > then);
    uint32_t hart;
    read_csr(PULP_CSR_MHARTID, hart);
    CHECK(hart == (args->cluster_id << 5 | args->hpu_id));
    read_csr(PULP_CSR_MCYCLE, now);
    read_csr(PULP_CSR_MCYCLE, then);
    CHECK(then > now);
    read_csr(PULP_CSR_MINSTRET, now);
    read_csr(PULP_CSR_MINSTRET, then);
    CHECK(then > now);
    write_csr(PULP_CSR_MINSTRET, 0x40000000);
    read_csr(PULP_CSR_MINSTRET, now);
    CHECK(now >= 0x40000000 && now < 0x50000000);
    CHECK(HPU_ID(args) == args->hpu_gid);
    CHECK(HOST_ADDR_HPU(args) == HOST_ADDR(args) + (uint64_t)args->hpu_gid * PAGE_SIZE);
    CHECK(HOST_PLD_ADDR(args) == HOST_ADDR_HPU(args) + DMA_ALIGN);
    CHECK((uintptr_t)dma_idx >> 24 == 0x1b);
    CHECK(fpspin_check_host_mem(args));
}
#else
static void fpspin(handler_args_t *args) { (void)args; }
#endif

/* What broke programs. */
static volatile uint32_t word;

static void locks(void) {
    static spin_lock_t lock;
    static spin_rw_lock_t shared;
    CHECK(spin_lock_try_lock(&lock) == 1 && spin_lock_try_lock(&lock) == 0);
    spin_lock_unlock(&lock);
    futex_init(&word);
    CHECK(futex_try_lock(&word) == 1 && futex_try_lock(&word) == 0);
    futex_unlock(&word);
    CHECK(futex_lock(&word) == 1);
    futex_unlock(&word);
    CHECK(futex_lock_s(&word) == 1);
    /* The first reader locks, the last one unlocks. */
    spin_rw_lock_r_lock(&shared);
    CHECK(shared.num_readers == 1 && shared.glock != 0);
    spin_rw_lock_r_lock(&shared);
    spin_rw_lock_r_unlock(&shared);
    CHECK(shared.num_readers == 1 && shared.glock != 0);
    spin_rw_lock_r_unlock(&shared);
    CHECK(shared.num_readers == 0 && shared.glock == 0);
    /* A writer looks at no count, and with readers preset none of them locks. */
    shared.num_readers = 32;
    spin_rw_lock_w_lock(&shared);
    spin_rw_lock_r_lock(&shared);
    CHECK(shared.num_readers == 33);
    spin_rw_lock_r_unlock(&shared);
    CHECK(shared.num_readers == 32 && shared.glock != 0);
    spin_rw_lock_w_unlock(&shared);
    CHECK(shared.num_readers == 32 && shared.glock == 0);
    word = 5;
    CHECK(compare_and_swap(&word, 4, 6) == -1 && word == 5);
    CHECK(compare_and_swap(&word, 5, 6) == 0 && word == 6);
    /* Without a reservation, the store is lost. */
    CHECK(store_conditional(&word, 7) == 1 && word == 6);
}

static_assert(HWSCHED_HANDLER_FUN_SIZE == 0x1B205004 && HWSCHED_HANDLER_MEM_ADDR == 0x1B205008, "hwsched.h");
static_assert(HWSCHED_HANDLER_MEM_SIZE == 0x1B20500C && HWSCHED_DOORBELL == 0x1B205050 && HWSCHED_ERROR == 0x1B205054, "hwsched.h");
static_assert(CMD_WORD0 == 0x1B205090 && CMD_WORD1 == 0x1B205094 && CMD_WORD2 == 0x1B205098 && CMD_WORD3 == 0x1B20509C, "words");
static_assert(CMD_WORD4 == 0x1B2050A0 && CMD_WORD5 == 0x1B2050A4 && CMD_WORD6 == 0x1B2050A8, "words");

__handler__ void contract_ph(handler_args_t *args);

static void arithmetic_and_registers(void) {
    CHECK(FAST_DIV(100, 3) == 12 && FAST_MOD(100, 8) == 4);
    uint32_t val = 0, other;
    read_csr(mhartid, val);
    CHECK((val & 31) == user_core_id() && (val >> 5) == user_cluster_id());
    write_csr(minstret, 512);
    clear_csr(minstret, 512);
    read_csr(minstret, val);
    CHECK(val < 512);
    read_register(tp, val);
    read_csr(mhartid, other);
    CHECK(val == other);
    write_register(t6, 3);
    read_register(t6, val);
    CHECK(val == 3);
    read_register(tp, val);
    CHECK(MMIO_READ(HWSCHED_HANDLER_FUN_ADDR) == (uint32_t)(uintptr_t)contract_ph);
    MMIO_WRITE(&word, 8);
    CHECK(word == 8);
    LABEL(a_label);
    LABEL(a_label);
    TRACING_DUMMY_INSTR();
}

static void dma(task_t *task) {
    uint32_t *local = (uint32_t *)task->scratchpad[task->home_cluster_id], completed = 77;
    spin_dma_t xfer = 12345;
    CHECK(spin_dma(local, local + 8, 0, SPIN_DMA_EXT2LOC, 0, &xfer) == SPIN_FAIL && xfer == 12345);
    CHECK(spin_dma(local, local + 8, 16, SPIN_DMA_LOC2EXT, 0, &xfer) == SPIN_OK);
    CHECK(spin_dma(local, local + 8, 16, SPIN_DMA_LOC2EXT, 0, NULL) == SPIN_OK);
    CHECK(spin_dma_test(xfer, &completed) == SPIN_OK && completed == 1);
    word = 99;
    spin__memcpy((void *)&word, local, 4);
    CHECK(*local == 99);
    xfer = spin__memcpy_nonblk(local, local + 1, 4);
    spin__wait_for_tf_completion(xfer);
    CHECK(local[1] == 99 && spin__tf_completed(xfer));
    /* Each transfer has an id of its own. */
    CHECK(spin__memcpy_nonblk(local, local + 1, 4) > xfer);
}

/* As handlers pass them: false for the handle, pointers for numbers. */
static void without_handles(task_t *task, uint64_t host) {
    uint32_t *local = (uint32_t *)task->scratchpad[task->home_cluster_id];
    local[0] = 0x600d;
    CHECK(spin_write_to_host(host + 4096, 0xcafe, false) == SPIN_OK);
    CHECK(spin_host_write(host + 4104, 0xbeef, false) == SPIN_OK);
    CHECK(spin_dma_to_host(host + 4112, local, 4, 0, false) == SPIN_OK);
    CHECK(spin_dma_from_host(host + 4096, local, 4, 0, false) == SPIN_OK);
    CHECK(local[0] == 0xcafe);
    CHECK(spin_send_packet(task->pkt_mem, task->pkt_mem_size, false) == SPIN_OK);
    CHECK(spin_rdma_put(5, local, 4, false) == SPIN_OK);
}

__handler__ void contract_ph(handler_args_t *args) {
    task_t *task = args->task;
    uint64_t host = (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
    pkt_hdr_t *hdrs = (pkt_hdr_t *)task->pkt_mem;
    uint8_t *payload = NULL;
    uint32_t length = 0;
    if (hdrs)
        GET_IP_UDP_PLD(&hdrs->ip_hdr, payload, length)
    CHECK(length == 8 && payload == (uint8_t *)(hdrs + 1));
    /* The length is the IP header's: generators leave the UDP header's unset. */
    hdrs->udp_hdr.length = 0;
    hdrs->ip_hdr.ihl = 6;
    GET_IP_UDP_PLD(&hdrs->ip_hdr, payload, length);
    CHECK(length == 8 && payload == (uint8_t *)(hdrs + 1) + 4);
    hdrs->ip_hdr.ihl = 5;
    CHECK(user_core_id() == args->hpu_id && user_cluster_id() == args->cluster_id);
    locks();
    arithmetic_and_registers();
    dma(task);
    fpspin(args);
    without_handles(task, host);
    puts("undeclared or not, it prints");
    spin_cmd_t handle;
    spin_dma_to_host(host, (uint32_t)(uintptr_t)&results, sizeof results, false, &handle);
    spin_cmd_wait(handle);
    TERMINATE;
    spin_write_to_host(host + 4120, 1, NULL);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = contract_ph;
    *th = NULL;
    *handler_mem = NULL;
}
