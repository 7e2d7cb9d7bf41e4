/* Replays a capture through count_sources_handlers.c, and prints the number of packets of each source address.
 * Usage: count_sources SOCKET HANDLERS.elf CAPTURE RULE */
#include <spin_client.h>
#include <stdio.h>
#include <stdlib.h>

#define SOURCES 256u

static void check(int status, const char *what) {
    if (status == SPIN_OK) return;
    fprintf(stderr, "%s: error %d: %s\n", what, status, spin_last_error());
    exit(1);
}

static spin_context *install(spin_client *client, const char *file, const char *rule) {
    spin_image *image;
    spin_options *options;
    spin_context *context;
    check(spin_image_load(file, &image), "image");
    check(spin_options_new(&options), "options");
    check(spin_options_set_name(options, "count_sources"), "name");
    check(spin_options_add_rule(options, rule), "rule");
    check(spin_options_set_host_memory(options, SOURCES * 4), "host memory");
    check(spin_options_set_placement(options, "any"), "placement");
    check(spin_install(client, image, options, &context), "install");
    for (size_t i = 0; spin_context_warning(context, i); i++) printf("warning: %s\n", spin_context_warning(context, i));
    spin_options_free(options);
    spin_image_free(image);
    return context;
}

static void replay(spin_client *client, const char *file) {
    static char capture[1 << 20];
    FILE *input = fopen(file, "rb");
    if (!input) perror(file), exit(1);
    size_t len = fread(capture, 1, sizeof capture, input);
    fclose(input);
    spin_replayed counts;
    check(spin_replay(client, capture, len, &counts, NULL), "replay");
    printf("%llu frames arrived\n", (unsigned long long)counts.arrived);
}

/* Reads the event of each copy. */
static void print_events(spin_client *client, uint32_t id) {
    spin_events *events;
    spin_event event;
    unsigned copies = 0;
    check(spin_events_open(client, id, &events), "events");
    while (spin_events_wait(events, 100000) == SPIN_OK)
        while (spin_events_poll(events, &event) == SPIN_OK)
            if (event.kind == SPIN_EVENT_COPIED_TO_HOST && event.length == 4) copies++;
            else printf("event: %s\n", spin_events_text(events));
    printf("%u copies, %llu events lost\n", copies, (unsigned long long)spin_events_lost(events));
    spin_events_close(events);
}

static void print_counter(spin_client *client, uint32_t id, const char *name) {
    spin_stats *stats;
    uint64_t engine, own;
    check(spin_stats_read(client, &stats), "statistics");
    check(spin_stats_engine(stats, name, &engine), name);
    check(spin_stats_context(stats, id, name, &own), name);
    printf("%s: %llu of the engine's %llu\n", name, (unsigned long long)own, (unsigned long long)engine);
    spin_stats_free(stats);
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: count_sources SOCKET HANDLERS.elf CAPTURE RULE\n"), 2;
    spin_client *client;
    check(spin_connect(argv[1], &client), "connect");
    spin_context *context = install(client, argv[2], argv[4]);
    uint32_t id = spin_context_id(context);
    replay(client, argv[3]);
    print_events(client, id);
    void *host;
    size_t len;
    check(spin_context_host_memory(context, &host, &len), "host memory");
    for (unsigned source = 0; source < SOURCES && source < len / 4; source++) {
        uint32_t packets = __atomic_load_n((uint32_t *)host + source, __ATOMIC_ACQUIRE);
        if (packets) printf("source .%u: %u packets\n", source, packets);
    }
    print_counter(client, id, "payload_runs");
    check(spin_remove(client, id), "remove");
    spin_context_free(context);
    spin_disconnect(client);
    return 0;
}
