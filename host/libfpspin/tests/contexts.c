/* Contexts of one program, each with rulesets of its own: contexts DEVICE HANDLERS.elf. On each line of its input it goes on, and prints
 * how many packets each context has had since the last one. */
#include <fpspin/fpspin.h>
#include <stdio.h>

enum { CONTEXTS = 3, COUNTER = 5 };
static fpspin_ctx_t ctx[CONTEXTS];

static fpspin_ruleset_t to_port(int port) {
    fpspin_ruleset_t rs;
    fpspin_ruleset_udp(&rs);
    rs.r[2] = FPSPIN_RULE_UDP_DPORT(port);
    return rs;
}

static void step(const char *done) {
    printf("%s\n", done);
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin)) {}
    for (int i = 0; i < CONTEXTS; i++) {
        if (!ctx[i].cpu_addr) continue;
        printf("%d:%u ", i, fpspin_get_counter(&ctx[i], COUNTER).count);
        fpspin_clear_counter(&ctx[i], COUNTER);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    if (argc != 3) return 255;
    const char *dev = argv[1], *img = argv[2];
    fpspin_ruleset_t first = to_port(1), second[] = {to_port(2), to_port(3)}, third = to_port(4), other;
    if (!fpspin_init(&ctx[0], dev, img, 0, &first, 1, 16)) return 1;
    if (!fpspin_init(&ctx[1], dev, img, 1, second, 2, 16)) return 2;
    if (!fpspin_init(&ctx[2], dev, img, 1, &third, 1, 16)) return 3;
    if (ctx[0].ctx_id != 0 || ctx[1].ctx_id != 1 || ctx[2].ctx_id != 1) return 4;
    if (ctx[0].cpu_addr == ctx[1].cpu_addr || ctx[0].fd == ctx[1].fd) return 5;
    step("1, 2 and 3, 4");
    second[0] = to_port(5), second[1] = to_port(6);
    fpspin_prog_me(second, 2);
    step("the latest: 5 and 6");
    other = to_port(7);
    fpspin_set_me_ruleset(0, &other);
    step("context 0: 7");
    other = to_port(8);
    fpspin_set_me_ruleset(1, &other);
    step("the latest context 1: 8");
    fpspin_exit(&ctx[2]);
    other = to_port(9);
    fpspin_prog_me(&other, 1);
    step("the latest that is left: 9");
    other = to_port(2);
    fpspin_set_me_ruleset(1, &other);
    step("the context 1 that is left: 2");
    fpspin_ruleset_bypass(&other);
    fpspin_set_me_ruleset(0, &other);
    step("context 0: none");
    fpspin_ruleset_match(&other);
    fpspin_set_me_ruleset(0, &other);
    step("context 0: all");
    fpspin_exit(&ctx[0]);
    fpspin_exit(&ctx[1]);
    return 0;
}
