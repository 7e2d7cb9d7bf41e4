/* Shared code of the shipped handlers' host programs. `PROGRAM IMAGE.elf MESSAGES [SOCKET]` installs the image's handlers and waits until
 * MESSAGES messages have completed. */
#ifndef HOST_PROGRAM_H
#define HOST_PROGRAM_H

#include <inttypes.h>
#include <spin_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

/* A program whose handlers are installed. They are removed when it exits. */
struct program {
    spin_client *client;
    spin_context *context;
    void *host; /* host memory; NULL if none was requested */
    uint64_t messages;
};

static inline void check(int status) {
    if (status == SPIN_OK) return;
    fprintf(stderr, "error %d: %s\n", status, spin_last_error());
    exit(1);
}

/* Options with the rule that matches the handlers' datagrams. */
static inline spin_options *program_options(void) {
    spin_options *options;
    check(spin_options_new(&options));
    check(spin_options_add_rule(options, "udp dport 9999"));
    return options;
}

/* Installs the handlers named on the command line, and frees the options. */
static inline struct program program_install(int argc, char **argv, spin_options *options) {
    struct program program;
    spin_image *image;
    size_t len;
    if (argc < 3) fprintf(stderr, "usage: PROGRAM IMAGE.elf MESSAGES [SOCKET]\n"), exit(1);
    program.messages = strtoull(argv[2], NULL, 10);
    check(spin_image_load(argv[1], &image));
    check(spin_connect(argc > 3 ? argv[3] : NULL, &program.client));
    check(spin_install(program.client, image, options, &program.context));
    check(spin_context_host_memory(program.context, &program.host, &len));
    spin_options_free(options);
    spin_image_free(image);
    return program;
}

/* Reads one of the context's counters. */
static inline uint64_t program_counter(const struct program *program, const char *name) {
    spin_stats *stats;
    uint64_t value;
    check(spin_stats_read(program->client, &stats));
    check(spin_stats_context(stats, spin_context_id(program->context), name, &value));
    spin_stats_free(stats);
    return value;
}

/* Prints that packets may be sent, and waits until the messages have completed. */
static inline void program_wait(const struct program *program) {
    const struct timespec interval = {.tv_nsec = 20000000};
    printf("waiting for %" PRIu64 " messages\n", program->messages);
    fflush(stdout);
    while (program_counter(program, "messages") < program->messages) thrd_sleep(&interval, NULL);
}

/* Reads a word of host memory, which handlers may write at any time. */
static inline uint32_t program_word(const struct program *program, size_t index) {
    return __atomic_load_n((const uint32_t *)program->host + index, __ATOMIC_ACQUIRE);
}

/* Adds up the vectors of `length` words that the clusters wrote to host memory, one after the other, and prints the non-zero sums. */
static inline void program_print_sum_of_clusters(const struct program *program, size_t length) {
    spin_capabilities spind;
    check(spin_capabilities_read(program->client, &spind, sizeof spind));
    for (size_t i = 0; i < length; i++) {
        uint32_t sum = 0;
        for (size_t cluster = 0; cluster < spind.clusters; cluster++) sum += program_word(program, cluster * length + i);
        if (sum) printf("%zu %" PRIu32 "\n", i, sum);
    }
}

static inline void program_end(struct program *program) {
    spin_context_free(program->context);
    spin_disconnect(program->client);
}

#endif
