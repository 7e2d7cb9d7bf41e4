/* Host program of handlers/reduce: prints the non-zero elements of the sum. */
#include "host_program.h"

#define ELEMENTS 512

int main(int argc, char **argv) {
    spin_options *options = program_options();
    check(spin_options_set_scratchpad(options, 4 << 10));
    check(spin_options_set_host_memory(options, 8 << 10));
    struct program program = program_install(argc, argv, options);
    program_wait(&program);
    program_print_sum_of_clusters(&program, ELEMENTS);
    program_end(&program);
    return 0;
}
