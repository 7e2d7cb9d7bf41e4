/* Host program of handlers/kvstore: provides the cache's memory and prints the number of answered requests. The cache is lost when the
 * program exits. */
#include "host_program.h"

int main(int argc, char **argv) {
    spin_options *options = program_options();
    check(spin_options_set_handler_memory(options, 8 << 10));
    struct program program = program_install(argc, argv, options);
    program_wait(&program);
    printf("%" PRIu64 " requests answered\n", program_counter(&program, "tx_packets"));
    program_end(&program);
    return 0;
}
