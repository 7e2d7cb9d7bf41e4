/* Everything a program can get wrong without breaking C: misuse DEVICE HANDLERS.elf NOT_AN_IMAGE. Its status is the number of calls
 * that did not fail. */
#include <fpspin/fpspin.h>
#include <stdio.h>
#include <string.h>
#include "exits.h"

static int passed;
#define FAILS(call)                                             \
    do {                                                        \
        if (call) passed++, printf("did not fail: %s\n", #call); \
    } while (0)
#define ENDS(call)                                                        \
    do {                                                                  \
        if (!EXITS(call)) passed++, printf("did not exit: %s\n", #call); \
    } while (0)

int main(int argc, char **argv) {
    if (argc != 4) return 255;
    const char *dev = argv[1], *img = argv[2], *text = argv[3];
    fpspin_ctx_t ctx, none;
    fpspin_flag_t flag = {.data = 0};
    fpspin_ruleset_t rs, bad;
    memset(&ctx, 0, sizeof ctx);
    memset(&none, 0xff, sizeof none);
    fpspin_ruleset_udp(&rs);
    bad = rs;
    bad.mode = 7;
    /* Contexts that are none. */
    FAILS(fpspin_init(NULL, dev, img, 0, &rs, 1, 16));
    FAILS(fpspin_init(&ctx, NULL, img, 0, &rs, 1, 16));
    FAILS(fpspin_init(&ctx, dev, NULL, 0, &rs, 1, 16));
    FAILS(fpspin_init(&ctx, dev, img, -1, &rs, 1, 16));
    FAILS(fpspin_init(&ctx, dev, img, 0, NULL, 1, 16));
    FAILS(fpspin_init(&ctx, dev, img, 0, &rs, 0, 16));
    FAILS(fpspin_init(&ctx, dev, img, 0, &rs, -1, 16));
    FAILS(fpspin_init(&ctx, dev, img, 0, &rs, 5, 16));
    FAILS(fpspin_init(&ctx, dev, img, 0, &bad, 1, 16));
    FAILS(fpspin_init(&ctx, dev, img, 0, &rs, 1, -1));
    FAILS(fpspin_init(&ctx, dev, img, 0, &rs, 1, 0x7fffffff));
    FAILS(fpspin_init(&ctx, "/nowhere", img, 0, &rs, 1, 16));
    FAILS(fpspin_init(&ctx, dev, "/nowhere", 0, &rs, 1, 16));
    FAILS(fpspin_init(&ctx, dev, text, 0, &rs, 1, 16));
    ENDS(fpspin_load(NULL, img, 0, 65536));
    ENDS(fpspin_load(&none, img, 0, 65536));
    ENDS(fpspin_prog_me(&rs, 1));
    ENDS(fpspin_set_me_ruleset(0, &rs));
    FAILS(fpspin_pop_req(NULL, 0, &flag));
    FAILS(fpspin_pop_req(&none, 0, &flag));
    FAILS(fpspin_get_counter(NULL, 0).count);
    FAILS(fpspin_get_cycles(&none, 0) != 0);
    FAILS(fpspin_get_avg_cycles(NULL) != 0);
    ENDS(fpspin_write_memory(&none, 0x1c000000, &rs, 4));
    fpspin_exit(NULL);
    fpspin_exit(&none);
    fpspin_unload(&none);
    fpspin_push_resp(&none, 0, flag);
    fpspin_clear_counter(&none, 0);
    fpspin_ruleset_bypass(NULL);
    hexdump(NULL, 1);
    hexdump(NULL, 0);
    /* A context with too little host memory for more than one HPU. */
    if (!fpspin_init(&ctx, dev, img, 3, &rs, 1, 1)) return 254;
    if (ctx.ctx_id != 3 || ctx.mmap_len != PAGE_SIZE || !ctx.cpu_addr) return 253;
    FAILS(fpspin_pop_req(&ctx, 0, &flag)); /* nothing was asked */
    FAILS(fpspin_pop_req(&ctx, 0, NULL));
    FAILS(fpspin_pop_req(&ctx, 1, &flag));
    FAILS(fpspin_pop_req(&ctx, -1, &flag));
    FAILS(fpspin_pop_req(&ctx, 16, &flag));
    fpspin_push_resp(&ctx, -1, flag);
    fpspin_push_resp(&ctx, 1, flag);
    fpspin_push_resp(&ctx, 0x7fffffff, flag);
    FAILS(fpspin_get_counter(&ctx, -1).count);
    FAILS(fpspin_get_counter(&ctx, 16).count);
    fpspin_clear_counter(&ctx, 16);
    ENDS(fpspin_prog_me(&rs, 5));
    ENDS(fpspin_prog_me(&bad, 1));
    ENDS(fpspin_set_me_ruleset(4, &rs));
    ENDS(fpspin_set_me_ruleset(-1, &rs));
    ENDS(fpspin_set_me_ruleset(3, NULL));
    if (EXITS(fpspin_set_me_ruleset(3, &rs))) return 249;
    ENDS(fpspin_write_memory(&ctx, 0x1c000000, NULL, 4));
    ENDS(fpspin_write_memory(&ctx, 0x1c000000, &rs, (size_t)-1));
    ENDS(fpspin_write_memory(&ctx, 0, &rs, 4));
    ENDS(fpspin_write_memory(&ctx, 0xfffffffe, &rs, 4));
    ENDS(fpspin_write_memory(&ctx, 0x1d000000, &rs, 4)); /* code */
    ENDS(fpspin_write_memory(&ctx, ctx.handler_mem.addr + ctx.handler_mem.size - 2, &rs, 4));
    /* Another that was ended. */
    fpspin_unload(&ctx);
    if (ctx.cpu_addr || ctx.mmap_len) return 252;
    FAILS(fpspin_pop_req(&ctx, 0, &flag));
    ENDS(fpspin_load(&ctx, "/nowhere", 0, 65536));
    ENDS(fpspin_write_memory(&ctx, 0x1c000000, &rs, 4));
    fpspin_exit(&ctx);
    FAILS(fpspin_pop_req(&ctx, 0, &flag));
    fpspin_exit(&ctx);
    /* One without host memory. */
    if (!fpspin_init(&ctx, dev, img, 0, &rs, 1, 0) || ctx.cpu_addr || ctx.mmap_len) return 250;
    FAILS(fpspin_pop_req(&ctx, 0, &flag));
    fpspin_exit(&ctx);
    /* SLMP. */
    slmp_sock_t sock;
    FAILS(slmp_socket(NULL, 0, 0, 0, 1) == 0);
    FAILS(slmp_socket(&sock, -1, 0, 0, 1) == 0);
    FAILS(slmp_socket(&sock, 0, 2000, 0, 1) == 0);
    FAILS(slmp_socket(&sock, 0, 0, 0, 0) == 0);
    memset(&sock, 0xff, sizeof sock);
    FAILS(slmp_sendmsg(&sock, inet_addr("127.0.0.1"), 1, &rs, sizeof rs) == 0);
    if (slmp_socket(&sock, 1, 0, 0, 2) || !sock.parallel || sock.num_threads != 2) return 251;
    FAILS(slmp_sendmsg(NULL, inet_addr("127.0.0.1"), 1, &rs, sizeof rs) == 0);
    FAILS(slmp_sendmsg(&sock, inet_addr("127.0.0.1"), 1, NULL, 1) == 0);
    FAILS(slmp_sendmsg(&sock, inet_addr("127.0.0.1"), 1, &rs, (size_t)-1) == 0);
    FAILS(slmp_close(NULL) == 0);
    return passed + slmp_close(&sock);
}
