/* A program whose spind goes away: orphan DEVICE HANDLERS.elf. It waits for a line of input before it goes on. */
#include <fpspin/fpspin.h>
#include <stdio.h>
#include "exits.h"

int main(int argc, char **argv) {
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs;
    fpspin_flag_t flag = {.data = 0};
    uint32_t word = 0;
    if (argc != 3) return 255;
    fpspin_ruleset_udp(&rs);
    if (!fpspin_init(&ctx, argv[1], argv[2], 0, &rs, 1, 16)) return 1;
    printf("ready\n");
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin)) {}
    for (int again = 0; again < 2; again++) {
        fpspin_push_resp(&ctx, 0, flag);
        if (fpspin_get_counter(&ctx, 0).count || !EXITS(fpspin_write_memory(&ctx, 0x1c000000, &word, 4))) return 2;
        if (!EXITS(fpspin_prog_me(&rs, 1))) return 3;
        /* Its own memory stays. */
        *(volatile char *)ctx.cpu_addr = 1;
        if (fpspin_pop_req(&ctx, 1, &flag)) return 4;
    }
    if (!EXITS(fpspin_load(&ctx, argv[2], 0, 65536))) return 5;
    fpspin_exit(&ctx);
    printf("ended\n");
    return 0;
}
