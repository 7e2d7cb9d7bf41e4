/* Prints what a program is compiled with, for C and for C++. */
#include <fpspin/fpspin.h>
#include <stdio.h>

#define NUMBER(value) printf("%s %lld\n", #value, (long long)(value))
#define MEMBER(type, member) printf("%s.%s %zu %zu\n", #type, #member, offsetof(type, member), sizeof(((type *)0)->member))

static void rule(const char *name, struct fpspin_rule rule) {
    printf("%s %d %08x %08x %08x\n", name, rule.idx, rule.mask, rule.start, rule.end);
}

static void ruleset(const char *name, void (*fill)(fpspin_ruleset_t *)) {
    fpspin_ruleset_t rs;
    fill(&rs);
    printf("%s %d\n", name, (int)rs.mode);
    for (int i = 0; i < 4; i++) rule(name, rs.r[i]);
}

/* Names and signatures as published. */
bool (*const init)(fpspin_ctx_t *, const char *, const char *, int, const fpspin_ruleset_t *, int, int) = fpspin_init;
void (*const leave[])(fpspin_ctx_t *) = {fpspin_exit, fpspin_unload};
void (*const load)(fpspin_ctx_t *, const char *, uint64_t, uint32_t) = fpspin_load;
void (*const prog_me)(const fpspin_ruleset_t *, int) = fpspin_prog_me;
void (*const set_me_ruleset)(int, const fpspin_ruleset_t *) = fpspin_set_me_ruleset;
void (*const set_regs_base)(const char *) = fpspin_set_regs_base;
const char *(*const get_regs_base)(void) = fpspin_get_regs_base;
volatile void *(*const pop_req)(fpspin_ctx_t *, int, fpspin_flag_t *) = fpspin_pop_req;
void (*const push_resp)(fpspin_ctx_t *, int, fpspin_flag_t) = fpspin_push_resp;
struct perf_counter (*const get_counter)(fpspin_ctx_t *, int) = fpspin_get_counter;
double (*const get_cycles)(fpspin_ctx_t *, int) = fpspin_get_cycles;
uint32_t (*const get_avg_cycles)(fpspin_ctx_t *) = fpspin_get_avg_cycles;
void (*const clear_counter)(fpspin_ctx_t *, int) = fpspin_clear_counter;
void (*const write_memory)(fpspin_ctx_t *, fpspin_addr_t, void *, size_t) = fpspin_write_memory;
int (*const make_socket)(slmp_sock_t *, int, int, int, int) = slmp_socket;
int (*const sendmsg_to)(slmp_sock_t *, in_addr_t, int, void *, size_t) = slmp_sendmsg;
int (*const close_socket)(slmp_sock_t *) = slmp_close;

int main(void) {
    NUMBER(NUM_HPUS);
    /* <assert.h> comes with the header. */
    ip_hdr_t ip;
    *(uint8_t *)&ip = 0x45;
    assert(sizeof ip == 20);
    NUMBER(ip.ihl);
    NUMBER(ip.version);
    NUMBER(PAGE_SIZE);
    NUMBER(FPSPIN_HOSTDMA_PAGES_DEFAULT);
    NUMBER(DMA_ALIGN);
    NUMBER(DMA_BUS_WIDTH);
    NUMBER(L2_END);
    NUMBER(MAX_COUNTERS);
    NUMBER(NUM_CLUSTERS);
    NUMBER(NUM_RULESETS);
    NUMBER(NUM_RULES_PER_RULESET);
    NUMBER(FPSPIN_MODE_AND);
    NUMBER(FPSPIN_MODE_OR);
    NUMBER(SLMP_PORT);
    NUMBER(SLMP_PAYLOAD_SIZE);
    NUMBER(MKEOM);
    NUMBER(MKSYN);
    NUMBER(MKACK);
    NUMBER(EOM(0xe000));
    NUMBER(SYN(0xe000));
    NUMBER(ACK(0xe000));
    NUMBER(sizeof(fpspin_addr_t));
    MEMBER(mac_addr_t, data);
    MEMBER(eth_hdr_t, src);
    MEMBER(eth_hdr_t, length);
    MEMBER(ip_hdr_t, length);
    MEMBER(ip_hdr_t, protocol);
    MEMBER(ip_hdr_t, source_id);
    MEMBER(ip_hdr_t, dest_id);
    MEMBER(udp_hdr_t, dst_port);
    MEMBER(udp_hdr_t, length);
    MEMBER(slmp_hdr_t, msg_id);
    MEMBER(slmp_hdr_t, pkt_off);
    MEMBER(pkt_hdr_t, ip_hdr);
    MEMBER(pkt_hdr_t, udp_hdr);
    MEMBER(slmp_pkt_hdr_t, slmp_hdr);
    MEMBER(struct fpspin_rule, idx);
    MEMBER(struct fpspin_rule, mask);
    MEMBER(struct fpspin_rule, start);
    MEMBER(struct fpspin_rule, end);
    MEMBER(fpspin_ruleset_t, r);
    MEMBER(fpspin_ruleset_t, mode);
    MEMBER(fpspin_flag_t, dma_id);
    MEMBER(fpspin_flag_t, len);
    MEMBER(fpspin_flag_t, hpu_id);
    MEMBER(fpspin_flag_t, data);
    MEMBER(fpspin_counter_t, sum);
    MEMBER(fpspin_counter_t, count);
    MEMBER(struct host_data, flag);
    MEMBER(struct host_data, counters);
    MEMBER(struct mem_area, addr);
    MEMBER(struct mem_area, size);
    MEMBER(fpspin_ctx_t, ctx_id);
    MEMBER(fpspin_ctx_t, fd);
    MEMBER(fpspin_ctx_t, cpu_addr);
    MEMBER(fpspin_ctx_t, mmap_len);
    MEMBER(fpspin_ctx_t, dma_idx);
    MEMBER(fpspin_ctx_t, pspin_host_data);
    MEMBER(fpspin_ctx_t, host_data_ptr);
    MEMBER(fpspin_ctx_t, hh);
    MEMBER(fpspin_ctx_t, ph);
    MEMBER(fpspin_ctx_t, th);
    MEMBER(fpspin_ctx_t, handler_mem);
    MEMBER(fpspin_ctx_t, app_data);
    MEMBER(slmp_sock_t, parallel);
    MEMBER(slmp_sock_t, wnd_sz);
    MEMBER(slmp_sock_t, align);
    MEMBER(slmp_sock_t, fc_us);
    MEMBER(slmp_sock_t, num_threads);
    rule("false", FPSPIN_RULE_FALSE);
    rule("empty", FPSPIN_RULE_EMPTY);
    rule("ip", FPSPIN_RULE_IP);
    rule("ip_proto", FPSPIN_RULE_IP_PROTO(17));
    rule("udp_sport", FPSPIN_RULE_UDP_SPORT(9330));
    rule("udp_dport", FPSPIN_RULE_UDP_DPORT(9330));
    ruleset("bypass", fpspin_ruleset_bypass);
    ruleset("match", fpspin_ruleset_match);
    ruleset("udp", fpspin_ruleset_udp);
    ruleset("slmp", fpspin_ruleset_slmp);
    fflush(stdout);
    hexdump("\0spin", 5);
    return 0;
}
