/* Loads handlers for packets (udp) or for messages of one packet (match): phases_host DEVICE IMAGE udp|match. At a line of its input it
 * prints how often each function of phases.c has run. */
#include <fpspin/fpspin.h>
#include <string.h>

int main(int argc, char **argv) {
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs;
    if (argc != 4) return 255;
    if (strcmp(argv[3], "udp") == 0) {
        fpspin_ruleset_udp(&rs);
    } else {
        fpspin_ruleset_match(&rs);
    }
    if (!fpspin_init(&ctx, argv[1], argv[2], 0, &rs, 1, FPSPIN_HOSTDMA_PAGES_DEFAULT)) return 1;
    printf("ready\n");
    fflush(stdout);
    getchar();
    for (int i = 1; i <= 5; i++) printf("%u ", fpspin_get_counter(&ctx, i).count);
    printf("\n");
    fpspin_exit(&ctx);
    return 0;
}
