/* Host program of the datatype engine: datatypes_host DEVICE IMAGE MESSAGES BYTES PAGES. Receives messages 0 to MESSAGES - 1 of BYTES
 * bytes each in blocks of 64 bytes with gaps of 64, and checks that each byte is where it belongs. */
#include <fpspin/fpspin.h>
#include <string.h>

enum { BLOCK = 64, STRIDE = 128 };

int main(int argc, char *argv[]) {
    fpspin_ctx_t ctx;
    fpspin_ruleset_t rs;
    uint32_t type[4];
    if (argc != 6) return 2;
    uint32_t messages = (uint32_t)atol(argv[3]), bytes = (uint32_t)atol(argv[4]);
    fpspin_ruleset_slmp(&rs);
    if (!fpspin_init(&ctx, argv[1], argv[2], 0, &rs, 1, atoi(argv[5]))) return EXIT_FAILURE;
    /* From the end of .l2_handler_data on; the size counts from its start. */
    if (ctx.handler_mem.addr <= 0x1c0c0000 || ctx.handler_mem.size != L2_END - 0x1c0c0000) return EXIT_FAILURE;
    type[0] = 0xdada, type[1] = BLOCK, type[2] = STRIDE, type[3] = (bytes / BLOCK + 1) * STRIDE;
    fpspin_write_memory(&ctx, ctx.handler_mem.addr, type, sizeof type);
    printf("ready\n");
    fflush(stdout);
    for (uint32_t done = 0; done < messages;) {
        for (int i = 0; i < NUM_HPUS; i++) {
            fpspin_flag_t flag;
            if (!fpspin_pop_req(&ctx, i, &flag)) continue;
            if (flag.len != bytes) {
                fprintf(stderr, "a message has %d bytes\n", (int)flag.len);
                return EXIT_FAILURE;
            }
            fpspin_push_resp(&ctx, i, flag);
            done++;
        }
    }
    const uint8_t *base = (const uint8_t *)ctx.cpu_addr + NUM_HPUS * PAGE_SIZE;
    for (uint32_t message = 0; message < messages; message++) {
        for (uint32_t at = 0; at < bytes; at++) {
            const uint8_t *block = base + (size_t)message * type[3] + (size_t)(at / BLOCK) * STRIDE;
            if (block[at % BLOCK] != (uint8_t)(at * 7 + message) || block[BLOCK + at % BLOCK] != 0) {
                fprintf(stderr, "message %u: byte %u is wrong\n", message, at);
                return EXIT_FAILURE;
            }
        }
    }
    printf("unpacked\n");
    fpspin_exit(&ctx);
    return EXIT_SUCCESS;
}
