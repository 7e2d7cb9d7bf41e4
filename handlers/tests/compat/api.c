/* Calls everything that handler.h and its like have, and writes the lines of what did not do as it should to the start of host
 * memory: {number of checks, number of failures, lines...}. The packet is a UDP datagram from 10.0.0.1:1234 to 10.0.0.2:9999 with
 * the payload "abcdefgh". */
#include <assert.h>
#include <handler.h>
#include <packets.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

volatile __attribute__((section(".l2_handler_data"))) uint32_t handler_mem[64] = {0x11223344};
static __attribute__((section(".data_tiny_l1"))) volatile uint32_t in_each_l1 = 77;
static volatile uint32_t word;

static void constants(const handler_args_t *args) {
    CHECK(NB_CORES == 8 && NUM_CLUSTER_HPUS == 8 && CORE_COUNT == NB_CLUSTERS * 8 && PKT_SIZE == 1024);
    CHECK(args->hpu_gid == args->cluster_id * NB_CORES + args->hpu_id);
    CHECK(user_core_id() == args->hpu_id && user_cluster_id() == args->cluster_id);
    CHECK(rt_core_id() == args->hpu_id && rt_cluster_id() == args->cluster_id && rt_nb_pe() == NB_CORES);
    CHECK(args->cluster_id == args->task->home_cluster_id);
    CHECK(in_each_l1 == 77 && ((uintptr_t)&in_each_l1 >> 24) == 0x1b);
    in_each_l1++;
    in_each_l1--;
    CHECK(*(volatile uint32_t *)(0x10000000 + 0x400000 * args->cluster_id + ((uintptr_t)&in_each_l1 & 0xfffff)) == 77);
}

static void arithmetic(void) {
    CHECK(MIN(3, 4) == 3 && MAX(3, 4) == 4 && DIV_CEIL(9, 4) == 3 && DIV_CEIL(8, 4) == 2);
    CHECK(FAST_DIV(37u, 3) == 4 && FAST_MOD(37u, 8u) == 5 && AND(6, 3) == 2);
    CHECK(strcmp(STRINGIFY(NB_CORES), "8") == 0);
    volatile uint64_t large = 0x123456789abcdefull;
    volatile int64_t negative = -1000000000007ll;
    CHECK(large % 1000007u == 0x123456789abcdefull % 1000007u && large / 0x100000001ull == 0x1234567);
    CHECK(negative / 1000 == -1000000000 && negative % 1000 == -7);
    CHECK(abs(-4) == 4);
}

static void registers(void) {
    uint32_t before, after, hart, count;
    read_csr(cycle, before);
    rt_time_wait_cycles(100);
    read_csr(cycle, after);
    CHECK(after - before >= 100);
    read_csr(mhartid, hart);
    CHECK(hart == (user_cluster_id() << 5 | user_core_id()));
    read_register(tp, count);
    CHECK(count == hart);
    write_csr(minstret, 1000);
    read_csr(minstret, count);
    CHECK(count >= 1000 && count < 1100);
    set_csr(minstret, 1u << 20);
    read_csr(minstret, count);
    CHECK(count & 1u << 20);
    clear_csr(minstret, 1u << 20);
    read_csr(minstret, count);
    CHECK(!(count & 1u << 20));
}

static void atomics(void) {
    word = 10;
    CHECK(amo_add((volatile int32_t *)&word, 5) == 10 && word == 15);
    CHECK(amo_swap(&word, 12) == 15 && word == 12);
    CHECK(amo_and(&word, 10) == 12 && word == 8);
    CHECK(amo_or(&word, 3) == 8 && word == 11);
    CHECK(amo_xor(&word, 1) == 11 && word == 10);
    CHECK(amo_max((volatile int32_t *)&word, -3) == 10 && word == 10);
    CHECK(amo_min((volatile int32_t *)&word, -3) == 10 && (int32_t)word == -3);
    CHECK(amo_minu(&word, 7) == (uint32_t)-3 && word == 7);
    CHECK(amo_maxu(&word, (uint32_t)-3) == 7 && (int32_t)word == -3);
    amo_store(&word, 1);
    CHECK(load_reserved(&word) == 1 && store_conditional(&word, 2) == 0 && word == 2);
    CHECK(store_conditional(&word, 3) != 0 && word == 2);
    CHECK(compare_and_swap(&word, 9, 4) == -1 && word == 2);
    CHECK(compare_and_swap(&word, 2, 4) == 0 && word == 4);
}

static void locks(void) {
    static spin_lock_t lock;
    static spin_rw_lock_t shared;
    CHECK(spin_lock_init(&lock) == SPIN_OK && spin_lock_try_lock(&lock) == 1);
    CHECK(spin_lock_try_lock(&lock) == 0 && spin_lock_unlock(&lock) == SPIN_OK);
    CHECK(spin_lock_lock(&lock) == SPIN_OK && lock != 0 && spin_lock_unlock(&lock) == SPIN_OK && lock == 0);
    CHECK(spin_rw_lock_r_lock(&shared) == SPIN_OK && spin_rw_lock_r_lock(&shared) == SPIN_OK && shared.num_readers == 2);
    CHECK(shared.glock != 0 && spin_rw_lock_r_unlock(&shared) == SPIN_OK && shared.glock != 0);
    CHECK(spin_rw_lock_r_unlock(&shared) == SPIN_OK && shared.num_readers == 0 && shared.glock == 0);
    /* The count is only the readers' own. */
    shared.num_readers = 32;
    CHECK(spin_rw_lock_w_lock(&shared) == SPIN_OK && spin_rw_lock_r_lock(&shared) == SPIN_OK && shared.num_readers == 33);
    CHECK(spin_rw_lock_r_unlock(&shared) == SPIN_OK && shared.glock != 0 && spin_rw_lock_w_unlock(&shared) == SPIN_OK);
    CHECK(spin_rw_lock_w_lock(&shared) == SPIN_OK && shared.glock != 0 && spin_rw_lock_w_unlock(&shared) == SPIN_OK);
    CHECK(shared.glock == 0);
    futex_init(&word);
    CHECK(futex_try_lock(&word) && !futex_try_lock(&word));
    futex_unlock(&word);
    CHECK(futex_lock(&word) == 1 && word == 1);
    futex_unlock(&word);
    CHECK(futex_lock_s(&word) == 1 && word == 1);
    futex_wait(&word, 0);
    futex_wake(&word);
    futex_unlock(&word);
}

static void cluster_dma(task_t *task) {
    uint32_t *local = (uint32_t *)task->scratchpad[task->home_cluster_id];
    spin_dma_t first, second;
    uint32_t done = 0;
    CHECK(task->scratchpad_size[task->home_cluster_id] >= 8192);
    for (uint32_t i = 0; i < 64; i++) handler_mem[i] = i * i;
    CHECK(spin_dma(handler_mem, local, sizeof handler_mem, SPIN_DMA_EXT2LOC, 0, &first) == SPIN_OK);
    CHECK(spin_dma_wait(first) == SPIN_OK && local[63] == 63 * 63 && local[0] == 0);
    CHECK(spin_dma_test(first, &done) == SPIN_OK && done);
    /* overlapping, longer than one piece, and upwards */
    for (uint32_t i = 0; i < 1500; i++) local[i] = i;
    CHECK(spin_dma(local, local + 1, 1499 * 4, SPIN_DMA_LOC2EXT, 0, &second) == SPIN_OK && second == first + 1);
    spin_dma_wait(second);
    CHECK(local[0] == 0 && local[1] == 0 && local[1024] == 1023 && local[1499] == 1498);
    first = second;
    CHECK(spin_dma(NULL, NULL, 0, SPIN_DMA_EXT2LOC, 0, &second) == SPIN_FAIL && second == first);
    for (uint32_t i = 0; i < 64; i++) local[i] = 0;
    first = spin__memcpy_nonblk(handler_mem, local, sizeof handler_mem);
    spin__wait_for_tf_completion(first);
    CHECK(spin__tf_completed(first) && local[63] == 63 * 63);
    spin__memcpy(local + 1, local, 4);
    CHECK(local[0] == 1);
    first = spin__public_memcpy_nonblk(handler_mem + 8, local, 4, task->home_cluster_id);
    spin__public_wait_for_tf_completion(first, task->home_cluster_id);
    CHECK(spin__public_tf_completed(first, task->home_cluster_id) && local[0] == 64);
    spin__public_memcpy(handler_mem + 2, local, 4, task->home_cluster_id);
    CHECK(local[0] == 4);
}

static void text(void) {
    char line[64], other[8];
    int count = snprintf(line, sizeof line, "%d|%5d|%-5d|%05d|%+d|%u|%x|%#X|%o", -7, 42, 42, -42, 3, 4000000000u, 48879u, 255u, 8u);
    CHECK(count == 47 && strcmp(line, "-7|   42|42   |-0042|+3|4000000000|beef|0XFF|10") == 0);
    snprintf(line, sizeof line, "%s|%.2s|%6s|%c|%%|%lld|%llx|%.3d|%p", "ab", "abc", "abc", 'x', -1234567890123ll, 0x123456789abcdefull, 7,
             (void *)0x1d000000);
    CHECK(strcmp(line, "ab|ab|   abc|x|%|-1234567890123|123456789abcdef|007|0x1d000000") == 0);
    CHECK(snprintf(other, sizeof other, "%s", "longer than that") == 16 && strcmp(other, "longer ") == 0);
    CHECK(sprintf(line, "%*d|%hhd|%hu|%zu|%lu", 4, 5, (signed char)1, (unsigned short)1, (size_t)9, 10ul) == 13 && strcmp(line, "   5|1|1|9|10") == 0);
    memset(line, 'z', 10);
    memcpy(line, "abc", 3);
    memmove(line + 1, line, 3);
    CHECK(memcmp(line, "aabcz", 5) == 0 && strlen("four") == 4 && strncmp("abc", "abd", 2) == 0);
    CHECK(strcmp(strcpy(line, "copy"), "copy") == 0 && strcmp(strncpy(line, "x", 3), "x") == 0);
    assert(results.checks > 0);
    printf("HPU %d: %s\n", (int)user_core_id(), "one line");
    puts("another");
    putchar('!');
}

static void commands(task_t *task) {
    uint64_t host = (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
    uint32_t *local = (uint32_t *)task->scratchpad[task->home_cluster_id];
    spin_cmd_t handle, other;
    bool completed = false;
    CHECK(task->host_mem_size >= 8192);
    CHECK(spin_write_to_host(host + 4096, 0x1122334455667788ull, &handle) == SPIN_OK && spin_cmd_wait(handle) == SPIN_OK);
    CHECK(spin_host_write(host + 4104, 0x99aabbccddeeff00ull, &handle) == SPIN_OK);
    CHECK(spin_cmd_test(handle, &completed) == SPIN_OK && completed);
    CHECK(spin_dma_from_host(host + 4096, (uint32_t)(uintptr_t)local, 16, false, &handle) == SPIN_OK);
    spin_cmd_wait(handle);
    CHECK(local[0] == 0x55667788 && local[1] == 0x11223344 && local[2] == 0xddeeff00 && local[3] == 0x99aabbcc);
    CHECK(spin_dma_to_host(host + 4112, (uint32_t)(uintptr_t)local, 16, true, &other) == SPIN_OK && other != handle);
    spin_cmd_wait(other);
    /* the handle is not asked for */
    CHECK(spin_write_to_host(host + 5000, 5, NULL) == SPIN_OK);
    CHECK(spin_dma_to_host(host + 5008, (uint32_t)(uintptr_t)local, 16, false, NULL) == SPIN_OK);
    CHECK(spin_dma_from_host(host + 4096, (uint32_t)(uintptr_t)local, 16, false, NULL) == SPIN_OK);
    /* leaves before what is sent later */
    CHECK(spin_rdma_put(3, local, 16, &handle) == SPIN_OK && spin_cmd_wait(handle) == SPIN_OK);
}

static void packet(task_t *task) {
    pkt_hdr_t *hdrs = (pkt_hdr_t *)task->pkt_mem;
    uint8_t *payload;
    uint32_t length;
    GET_IP_UDP_PLD(&hdrs->ip_hdr, payload, length);
    CHECK(length == 8 && memcmp(payload, "abcdefgh", 8) == 0 && payload == (uint8_t *)task->pkt_mem + sizeof(pkt_hdr_t));
    CHECK(task->pkt_mem_size == sizeof(pkt_hdr_t) + 8);
    CHECK(hdrs->ip_hdr.version == 4 && hdrs->ip_hdr.ihl == 5 && hdrs->ip_hdr.protocol == 17 && hdrs->ip_hdr.ttl == 64);
    CHECK(memcmp(task->pkt_mem, task->l2_pkt_mem, task->pkt_mem_size) == 0);
#ifdef SPIN_ABI_PSPIN
    CHECK(hdrs->ip_hdr.length == 36 && hdrs->ip_hdr.source_id == 0x0a000001 && hdrs->ip_hdr.dest_id == 0x0a000002);
    CHECK(hdrs->udp_hdr.src_port == 1234 && hdrs->udp_hdr.dst_port == 9999 && hdrs->udp_hdr.length == 16);
#else
    CHECK(ntohs(hdrs->ip_hdr.length) == 36 && ntohl(hdrs->ip_hdr.source_id) == 0x0a000001 && hdrs->ip_hdr.dest_id == htonl(0x0a000002));
    CHECK(hdrs->udp_hdr.src_port == htons(1234) && ntohs(hdrs->udp_hdr.dst_port) == 9999 && ntohs(hdrs->udp_hdr.length) == 16);
    CHECK(hdrs->eth_hdr.length == htons(0x0800) && hdrs->eth_hdr.dest.data[5] == 2 && hdrs->eth_hdr.src.data[5] == 1);
    uint16_t checksum = hdrs->ip_hdr.checksum;
    hdrs->ip_hdr.checksum = 0;
    CHECK(ip_checksum(&hdrs->ip_hdr, sizeof(ip_hdr_t)) == checksum);
    hdrs->ip_hdr.checksum = checksum;
#endif
}

/* Turns the packet round and sends it. */
static void answer(task_t *task) {
    pkt_hdr_t *hdrs = (pkt_hdr_t *)task->pkt_mem;
    uint32_t address = hdrs->ip_hdr.source_id;
    hdrs->ip_hdr.source_id = hdrs->ip_hdr.dest_id;
    hdrs->ip_hdr.dest_id = address;
    uint16_t port = hdrs->udp_hdr.src_port;
    hdrs->udp_hdr.src_port = hdrs->udp_hdr.dst_port;
    hdrs->udp_hdr.dst_port = port;
#ifdef SPIN_ABI_FPSPIN
    mac_addr_t mac = hdrs->eth_hdr.src;
    hdrs->eth_hdr.src = hdrs->eth_hdr.dest;
    hdrs->eth_hdr.dest = mac;
#endif
    spin_cmd_t handle;
    spin_send_packet(task->pkt_mem, task->pkt_mem_size, &handle);
    CHECK(spin_cmd_wait(handle) == SPIN_OK);
}

__handler__ void api_hh(handler_args_t *args) {
    CHECK(handler_mem[0] == 0x11223344);
    CHECK(args->task->handler_mem == (void *)handler_mem && args->task->handler_mem_size >= sizeof handler_mem);
    /* the register array itself: neither a fault nor for long */
    amo_add(args->task->scratchpad, 4);
}

__handler__ void api_ph(handler_args_t *args) {
    task_t *task = args->task;
    constants(args);
    arithmetic();
    registers();
    atomics();
    locks();
    cluster_dma(task);
    text();
    commands(task);
    packet(task);
    answer(task);
}

__handler__ void api_th(handler_args_t *args) {
    task_t *task = args->task;
    CHECK(((uintptr_t)task->scratchpad[0] & 4095) == 0);
    spin_cmd_t handle;
    uint64_t host = (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
    spin_dma_to_host(host, (uint32_t)(uintptr_t)&results, sizeof results, false, &handle);
    TERMINATE;
    results.failures = 99;
    spin_dma_to_host(host, (uint32_t)(uintptr_t)&results, sizeof results, false, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {api_hh, api_ph, api_th};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = (void *)handler_mem;
}
