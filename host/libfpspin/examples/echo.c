/* Answers UDP datagrams in capitals: echo DEVICE HANDLERS.elf COUNT. */
#include <ctype.h>
#include <fpspin/fpspin.h>
#include <stdio.h>
#include <stdlib.h>

/* Ethernet, IPv4 without options, UDP. */
enum { ETH = 0, IP = 14, UDP = 34, PAYLOAD = 42 };

static void swap(volatile uint8_t *a, volatile uint8_t *b, int count) {
    for (int i = 0; i < count; i++) {
        uint8_t other = a[i];
        a[i] = b[i];
        b[i] = other;
    }
}

static void answer(volatile uint8_t *packet, uint32_t length) {
    swap(packet + ETH, packet + ETH + 6, 6);
    swap(packet + IP + 12, packet + IP + 16, 4);
    swap(packet + UDP, packet + UDP + 2, 2);
    packet[UDP + 6] = packet[UDP + 7] = 0; /* no checksum */
    for (uint32_t at = PAYLOAD; at < length; at++) packet[at] = (uint8_t)toupper(packet[at]);
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: echo DEVICE HANDLERS.elf COUNT\n"), 2;
    int left = atoi(argv[3]);
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs;
    fpspin_ruleset_udp(&rs);
    if (!fpspin_init(&ctx, argv[1], argv[2], 0, &rs, 1, FPSPIN_HOSTDMA_PAGES_DEFAULT)) return 1;
    printf("ready\n");
    fflush(stdout);
    while (left > 0) {
        for (int hpu = 0; hpu < NUM_HPUS; hpu++) {
            fpspin_flag_t flag;
            volatile uint8_t *packet = (volatile uint8_t *)fpspin_pop_req(&ctx, hpu, &flag);
            if (!packet) continue;
            answer(packet, flag.len);
            fpspin_push_resp(&ctx, hpu, flag);
            left--;
        }
    }
    /* The last ones are still being sent. */
    while (fpspin_get_counter(&ctx, 1).count < (uint32_t)atoi(argv[3])) {}
    fpspin_counter_t bytes = fpspin_get_counter(&ctx, 1);
    printf("%u packets, %u bytes, cycles counted: %s\n", bytes.count, bytes.sum, fpspin_get_avg_cycles(&ctx) > 0 ? "yes" : "no");
    fpspin_exit(&ctx);
    return 0;
}
