/* What a program does to a context that is loaded, and sees of it: control DEVICE HANDLERS.elf. On each line of its input it goes on. */
#include <fpspin/fpspin.h>
#include <stdio.h>
#include <string.h>

static void step(const char *done) {
    printf("%s\n", done);
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin)) {}
}

static void to_port(fpspin_ruleset_t *rs, int port) {
    fpspin_ruleset_udp(rs);
    rs->r[2] = FPSPIN_RULE_UDP_DPORT(port);
}

int main(int argc, char **argv) {
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs[2];
    const char *where = "/sys/devices/pspin";
    if (argc != 3) return 255;
    fpspin_set_regs_base(where);
    if (fpspin_get_regs_base() != where) return 1;
    to_port(&rs[0], 1);
    to_port(&rs[1], 2);
    if (!fpspin_init(&ctx, argv[1], argv[2], 0, rs, 2, 20)) return 2;
    if (ctx.mmap_len != 20 * PAGE_SIZE || ctx.host_data_ptr != 0x1c000000) return 3;
    if (ctx.hh.size != 0 || ctx.th.size != 0 || ctx.ph.addr < 0x1d000000 || ctx.ph.size == 0) return 4;
    if (ctx.handler_mem.size != 256 * 1024) return 5;
    step("ports 1 and 2");
    to_port(&rs[0], 3);
    fpspin_prog_me(rs, 1);
    step("port 3");
    to_port(&rs[1], 4);
    fpspin_set_me_ruleset(0, &rs[1]);
    step("port 4");
    fpspin_prog_me(rs, 2);
    step("ports 3 and 4");
    fpspin_counter_t counter = fpspin_get_counter(&ctx, 5);
    printf("%u of %u, %.1f, %u\n", counter.sum, counter.count, fpspin_get_cycles(&ctx, 5), fpspin_get_avg_cycles(&ctx));
    fpspin_clear_counter(&ctx, 5);
    /* Handlers find it, across the end of a page. */
    uint32_t words[2000];
    for (uint32_t i = 0; i < 2000; i++) words[i] = i;
    fpspin_write_memory(&ctx, ctx.handler_mem.addr + 4, words, sizeof words);
    step("written");
    counter = fpspin_get_counter(&ctx, 5);
    printf("%u of %u\n", counter.sum, counter.count);
    void *before = ctx.cpu_addr;
    if (!before) return 9;
    fpspin_load(&ctx, argv[2], 0, 16 * PAGE_SIZE);
    if (!ctx.cpu_addr || ctx.mmap_len != 16 * PAGE_SIZE) return 10;
    step("loaded anew");
    counter = fpspin_get_counter(&ctx, 5);
    printf("%u of %u\n", counter.sum, counter.count);
    fpspin_unload(&ctx);
    step("unloaded");
    fpspin_exit(&ctx);
    return 0;
}
