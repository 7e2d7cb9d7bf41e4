/* Writes what SLMP messages bring to a file, one after the other, up to an empty one: slmp_receive DEVICE HANDLERS.elf FILE LONGEST. */
#include <fpspin/fpspin.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: slmp_receive DEVICE HANDLERS.elf FILE LONGEST\n"), 2;
    FILE *file = fopen(argv[3], "wb");
    if (!file) return perror(argv[3]), 1;
    long longest = atol(argv[4]);
    int pages = NUM_HPUS + (int)((longest + PAGE_SIZE - 1) / PAGE_SIZE);
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs;
    fpspin_ruleset_slmp(&rs);
    if (!fpspin_init(&ctx, argv[1], argv[2], 0, &rs, 1, pages)) return 1;
    printf("ready\n");
    fflush(stdout);
    const uint8_t *message = (const uint8_t *)ctx.cpu_addr + NUM_HPUS * PAGE_SIZE;
    uint32_t messages = 0;
    for (bool last = false; !last;) {
        for (int hpu = 0; hpu < NUM_HPUS; hpu++) {
            fpspin_flag_t flag;
            if (!fpspin_pop_req(&ctx, hpu, &flag)) continue;
            if (fwrite(message, 1, flag.len, file) != flag.len) return perror(argv[3]), 1;
            messages++;
            last = flag.len == 0;
            fpspin_push_resp(&ctx, hpu, flag);
        }
    }
    if (fclose(file)) return perror(argv[3]), 1;
    /* The last acknowledgement is on its way when it is counted. */
    while (fpspin_get_counter(&ctx, 1).count < messages) {}
    fpspin_counter_t packets = fpspin_get_counter(&ctx, 0);
    printf("%u messages in %u packets, %u bytes\n", messages, packets.count, packets.sum);
    fpspin_exit(&ctx);
    return 0;
}
