/* Host program of both pings: ping_host icmp|udp DEVICE IMAGE REQUESTS. It answers as many requests; for 0 it lets the handlers answer,
 * until a line of input. */
#include <fpspin/fpspin.h>
#include <string.h>

struct icmp_hdr {
    uint8_t type, code;
    uint16_t checksum;
};

static uint16_t checksum(const uint8_t *bytes, size_t length) {
    uint32_t sum = 0;
    for (size_t i = 0; i + 1 < length; i += 2) sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    if (length % 2) sum += (uint32_t)bytes[length - 1] << 8;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static void icmp(uint8_t *packet, uint32_t length) {
    struct icmp_hdr *icmp = (struct icmp_hdr *)(packet + sizeof(eth_hdr_t) + sizeof(ip_hdr_t));
    icmp->type = 0;
    icmp->checksum = 0;
    icmp->checksum = checksum((uint8_t *)icmp, length - sizeof(eth_hdr_t) - sizeof(ip_hdr_t));
}

static void udp(uint8_t *packet, uint32_t length) {
    for (uint32_t i = sizeof(pkt_hdr_t), j = length - 1; i < j; i++, j--) {
        uint8_t byte = packet[i];
        packet[i] = packet[j];
        packet[j] = byte;
    }
}

int main(int argc, char *argv[]) {
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs;
    long left = argc == 5 ? atol(argv[4]) : -1;
    bool is_icmp;
    if (left < 0) return 2;
    is_icmp = !strcmp(argv[1], "icmp");
    if (is_icmp) {
        fpspin_ruleset_t echo = {
            .mode = FPSPIN_MODE_AND,
            .r =
                {
                    FPSPIN_RULE_IP,
                    FPSPIN_RULE_IP_PROTO(1),
                    ((struct fpspin_rule){.idx = 8, .mask = 0xff00, .start = 0x0800, .end = 0x0800}),
                    FPSPIN_RULE_FALSE,
                },
        };
        rs = echo;
    } else {
        fpspin_ruleset_udp(&rs);
    }
    if (!fpspin_init(&ctx, argv[2], argv[3], 0, &rs, 1, FPSPIN_HOSTDMA_PAGES_DEFAULT)) {
        fprintf(stderr, "failed to initialise\n");
        return EXIT_FAILURE;
    }
    printf("ready\n");
    fflush(stdout);
    if (left == 0) getchar();
    while (left > 0) {
        for (int i = 0; i < NUM_HPUS; i++) {
            fpspin_flag_t flag;
            uint8_t *packet = (uint8_t *)fpspin_pop_req(&ctx, i, &flag);
            if (!packet) continue;
            if (flag.hpu_id != i) {
                fprintf(stderr, "HPU %d asked as %d\n", i, flag.hpu_id);
                return EXIT_FAILURE;
            }
            (is_icmp ? icmp : udp)(packet, flag.len);
            fpspin_push_resp(&ctx, i, flag);
            left--;
        }
    }
    /* The last ones may not have been sent yet. */
    while (fpspin_get_counter(&ctx, 0).count < (uint32_t)atol(argv[4])) {}
    fpspin_counter_t count = fpspin_get_counter(&ctx, 0);
    printf("%u packets, average %s\n", count.count, fpspin_get_avg_cycles(&ctx) ? "known" : "unknown");
    printf("handlers of messages: %u\n", fpspin_get_counter(&ctx, 1).sum);
    fpspin_exit(&ctx);
    return EXIT_SUCCESS;
}
