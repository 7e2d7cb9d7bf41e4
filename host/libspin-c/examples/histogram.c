/* Host program of handlers/histogram: prints the received values and their counts. */
#include "host_program.h"

/* Number of counted values. */
#define BINS 1025

int main(int argc, char **argv) {
    spin_options *options = program_options();
    check(spin_options_set_scratchpad(options, 8 << 10));
    check(spin_options_set_host_memory(options, 20 << 10));
    struct program program = program_install(argc, argv, options);
    program_wait(&program);
    program_print_sum_of_clusters(&program, BINS);
    program_end(&program);
    return 0;
}
