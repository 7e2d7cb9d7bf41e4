/* Host program of handlers/aggregate: prints the sum of the last completed message. */
#include "host_program.h"

int main(int argc, char **argv) {
    spin_options *options = program_options();
    check(spin_options_set_scratchpad(options, 4 << 10));
    check(spin_options_set_host_memory(options, 4 << 10));
    struct program program = program_install(argc, argv, options);
    program_wait(&program);
    printf("sum %" PRIu32 "\n", program_word(&program, 0));
    program_end(&program);
    return 0;
}
