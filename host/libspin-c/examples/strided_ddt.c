/* Host program of handlers/strided_ddt: requests blocks of 256 bytes with a stride of 512 and prints the beginning of each received
 * block. */
#include "host_program.h"

#define BLOCK 256
#define STRIDE 512
#define HOST_MEMORY (2 << 20)

/* Prints the first eight bytes of a block, if it was received. */
static void print_block(const struct program *program, unsigned block) {
    const uint64_t *host = program->host;
    unsigned char bytes[8];
    uint64_t first = __atomic_load_n(host + block * (STRIDE / 8), __ATOMIC_ACQUIRE);
    if (first == 0) return;
    memcpy(bytes, &first, 8);
    printf("block %u: [", block);
    for (int i = 0; i < 8; i++) printf("%s%02x", i ? ", " : "", bytes[i]);
    printf("]\n");
}

int main(int argc, char **argv) {
    spin_options *options = program_options();
    check(spin_options_set_handler_memory(options, 4 << 10));
    check(spin_options_set_host_memory(options, HOST_MEMORY));
    struct program program = program_install(argc, argv, options);
    /* Written in one piece, since handlers may read it at any time. */
    uint64_t *layout = (uint64_t *)program.host + HOST_MEMORY / 8 - 1;
    __atomic_store_n(layout, (uint64_t)STRIDE << 32 | BLOCK, __ATOMIC_RELEASE);
    program_wait(&program);
    for (unsigned block = 0; block < HOST_MEMORY / STRIDE - 1; block++) print_block(&program, block);
    program_end(&program);
    return 0;
}
