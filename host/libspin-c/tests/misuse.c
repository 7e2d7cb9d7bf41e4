/* Calls that fail: each returns the code of its error, has no other effect, and explains itself.
 * Usage: misuse SOCKET HANDLERS.elf FOLDER CAPTURE */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <spin_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPECT(status, call) expect(status, call, #call, __LINE__)
#define HOLDS(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char *what, int line) {
    fprintf(stderr, "misuse.c:%d: %s; last error: %s\n", line, what, spin_last_error());
    exit(1);
}

static void expect(int expected, int status, const char *call, int line) {
    if (status == expected) return;
    fprintf(stderr, "%d instead of %d: ", status, expected);
    fail(call, line);
}

static int says(const char *text) {
    return strstr(spin_last_error(), text) != NULL;
}

/* Each pointer in turn is NULL. */
static void null_pointers(spin_client *client, spin_options *options, spin_image *image, spin_context *context) {
    uint32_t id = spin_context_id(context), word;
    int fd;
    uint64_t value;
    void *memory;
    spin_image *no_image = image;
    spin_context *no_context = context;
    size_t len;
    spin_stats *stats;
    spin_events *events;
    spin_event event;
    EXPECT(SPIN_E_NULL, spin_connect(NULL, NULL));
    HOLDS(says("client is NULL"));
    EXPECT(SPIN_E_NULL, spin_capabilities_read(client, NULL, 8));
    EXPECT(SPIN_E_NULL, spin_image_load(NULL, &no_image));
    HOLDS(no_image == NULL);
    EXPECT(SPIN_E_NULL, spin_image_load("/dev/null", NULL));
    EXPECT(SPIN_E_NULL, spin_image_copy(NULL, 1, &no_image));
    EXPECT(SPIN_E_NULL, spin_options_new(NULL));
    EXPECT(SPIN_E_NULL, spin_options_set_weight(NULL, 1));
    EXPECT(SPIN_E_NULL, spin_options_add_rule(NULL, "udp"));
    EXPECT(SPIN_E_NULL, spin_options_add_rule(options, NULL));
    EXPECT(SPIN_E_NULL, spin_options_set_handlers(NULL, NULL, NULL, NULL, NULL));
    EXPECT(SPIN_E_NULL, spin_install(client, NULL, options, &no_context));
    HOLDS(no_context == NULL && says("image is NULL"));
    EXPECT(SPIN_E_NULL, spin_install(client, image, options, NULL));
    EXPECT(SPIN_E_NULL, spin_context_host_memory(NULL, &memory, &len));
    EXPECT(SPIN_E_NULL, spin_context_handler_memory(NULL, &word, &word));
    HOLDS(spin_context_id(NULL) == 0 && spin_context_warning(NULL, 0) == NULL);
    EXPECT(SPIN_E_NULL, spin_find(client, NULL, &word));
    EXPECT(SPIN_E_NULL, spin_find(client, "misuse", NULL));
    EXPECT(SPIN_E_NULL, spin_remove(NULL, id));
    EXPECT(SPIN_E_NULL, spin_set_rules(client, id, NULL, 1, NULL));
    const char *rules[] = {"udp dport 1", NULL};
    EXPECT(SPIN_E_NULL, spin_set_rules(client, id, rules, 2, NULL));
    EXPECT(SPIN_E_NULL, spin_read_memory(client, id, 0, NULL, 4));
    EXPECT(SPIN_E_NULL, spin_write_memory(client, id, 0, NULL, 4));
    EXPECT(SPIN_E_NULL, spin_read_unit_memory(client, id, 0, 0, NULL, 4));
    EXPECT(SPIN_E_NULL, spin_write_unit_memory(client, id, 0, 0, NULL, 4));
    EXPECT(SPIN_E_NULL, spin_events_open(NULL, id, &events));
    EXPECT(SPIN_E_NULL, spin_events_poll(NULL, &event));
    EXPECT(SPIN_E_NULL, spin_events_wait(NULL, 1));
    EXPECT(SPIN_E_NULL, spin_events_fd(NULL, &fd));
    HOLDS(spin_events_text(NULL)[0] == '\0' && spin_events_lost(NULL) == 0);
    EXPECT(SPIN_E_NULL, spin_stats_read(client, NULL));
    EXPECT(SPIN_E_NULL, spin_stats_engine(NULL, "matched", &value));
    EXPECT(SPIN_OK, spin_stats_read(client, &stats));
    EXPECT(SPIN_E_NULL, spin_stats_engine(stats, NULL, &value));
    EXPECT(SPIN_E_NULL, spin_stats_engine(stats, "matched", NULL));
    spin_stats_free(stats);
    EXPECT(SPIN_E_NULL, spin_replay(client, NULL, 24, NULL, NULL));
    EXPECT(SPIN_E_NULL, spin_capture_bytes(NULL, (const void **)&memory, &len));
    spin_disconnect(NULL), spin_image_free(NULL), spin_options_free(NULL), spin_context_free(NULL);
    spin_events_close(NULL), spin_stats_free(NULL), spin_capture_free(NULL), spin_region_free(NULL);
}

static void bad_texts(spin_client *client, spin_options *options, uint32_t id) {
    const char *bad = "udp \xff\xfe";
    uint32_t found;
    EXPECT(SPIN_E_UTF8, spin_options_set_name(options, bad));
    EXPECT(SPIN_E_UTF8, spin_options_add_rule(options, bad));
    EXPECT(SPIN_E_UTF8, spin_options_set_handlers(options, NULL, bad, NULL, NULL));
    EXPECT(SPIN_E_UTF8, spin_find(client, bad, &found));
    EXPECT(SPIN_E_UTF8, spin_set_rules(client, id, &bad, 1, NULL));
    HOLDS(says("rules is not UTF-8"));
    EXPECT(SPIN_E_UTF8, spin_set_rules(client, id, NULL, 0, bad));
    EXPECT(SPIN_E_VALUE, spin_options_set_placement(options, "near"));
    HOLDS(says("expected one of: home, any"));
}

/* spind's words arrive, and the connection remains usable. */
static void refusals(spin_client *client, spin_context *context, spin_image *image) {
    uint32_t id = spin_context_id(context), found = 0, address, size;
    uint64_t value;
    const char *rule = "no such rule";
    spin_stats *stats;
    spin_capabilities known;
    static char large[(16 << 20) + 1];
    EXPECT(SPIN_E_REFUSED, spin_set_rules(client, id, &rule, 1, NULL));
    HOLDS(says("rule 1: column 1: expected a condition") && says("found `no`"));
    EXPECT(SPIN_E_REFUSED, spin_remove(client, id + 1000));
    EXPECT(SPIN_E_REFUSED, spin_read_memory(client, id, 0, &value, sizeof value));
    EXPECT(SPIN_E_VALUE, spin_read_memory(client, id, 0, large, sizeof large));
    EXPECT(SPIN_E_VALUE, spin_write_memory(client, id, 0, large, sizeof large));
    EXPECT(SPIN_E_VALUE, spin_write_memory(client, id, 0, large, SIZE_MAX));
    EXPECT(SPIN_E_REFUSED, spin_replay(client, large, 100, NULL, NULL));
    EXPECT(SPIN_E_NOT_FOUND, spin_find(client, "nobody", &found));
    HOLDS(found == 0);
    EXPECT(SPIN_OK, spin_find(client, "misuse", &found));
    HOLDS(found == id);
    EXPECT(SPIN_E_FILE, spin_image_load("/no/such/file", &image));
    HOLDS(image == NULL && says("/no/such/file: No such file"));
    EXPECT(SPIN_OK, spin_stats_read(client, &stats));
    EXPECT(SPIN_E_NOT_FOUND, spin_stats_engine(stats, "no_counter", &value));
    EXPECT(SPIN_E_NOT_FOUND, spin_stats_context(stats, id + 1, "matched", &value));
    EXPECT(SPIN_OK, spin_stats_context(stats, id, "matched", &value));
    spin_stats_free(stats);
    /* Handler memory is written and read, and nothing beyond it. */
    EXPECT(SPIN_OK, spin_context_handler_memory(context, &address, &size));
    char written[8] = "seven..", got[9] = "........";
    EXPECT(SPIN_OK, spin_write_memory(client, id, address, written, 8));
    EXPECT(SPIN_OK, spin_read_memory(client, id, address, got, 7));
    HOLDS(size >= 8 && memcmp(got, "seven...", 9) == 0);
    EXPECT(SPIN_OK, spin_write_unit_memory(client, id, 0, address, "unit", 4));
    EXPECT(SPIN_OK, spin_read_unit_memory(client, id, 0, address, got, 4));
    HOLDS(memcmp(got, "unit", 4) == 0);
    EXPECT(SPIN_E_REFUSED, spin_read_unit_memory(client, id, 1, address, got, 4));
    EXPECT(SPIN_E_REFUSED, spin_write_unit_memory(client, id, 1, address, got, 4));
    /* A program with an older header has a shorter structure; one with a newer header has zeros. */
    memset(&known, 0x55, sizeof known);
    EXPECT(SPIN_OK, spin_capabilities_read(client, &known, 8));
    HOLDS(known.protocol == spin_protocol_version() && known.threads >= 1 && known.clusters == 0x55555555);
    memset(large, 0x55, sizeof known + 9);
    EXPECT(SPIN_OK, spin_capabilities_read(client, (spin_capabilities *)large, sizeof known + 8));
    memcpy(&known, large, sizeof known);
    HOLDS(large[sizeof known] == 0 && large[sizeof known + 7] == 0 && large[sizeof known + 8] == 0x55);
    HOLDS(known.units >= 1 && known.units <= known.threads);
    const spin_capabilities *k = &known;
    printf("%u %u %u %u %u %u %u %u", k->protocol, k->threads, k->clusters, k->hpus_per_cluster, k->max_frame, k->max_payload,
           k->handler_memory, k->scratchpad);
    const uint64_t limits[] = {k->contexts, k->queues, k->host_memory, k->image, k->watchdog_us, k->guarantees};
    for (int i = 0; i < 6; i++) printf(" %llu", (unsigned long long)limits[i]);
    printf(" %s\n", k->version);
}

/* The event of a copy is within host memory, and is read once. The capture of no frames is a header of 24 bytes. */
static void events(spin_client *client, spin_context *context, const char *file) {
    static char frames[4096];
    spin_events *events;
    spin_event event = {0};
    spin_capture *sent;
    void *host;
    const void *start;
    size_t len;
    FILE *input = fopen(file, "rb");
    HOLDS(input != NULL);
    size_t size = fread(frames, 1, sizeof frames, input);
    fclose(input);
    EXPECT(SPIN_OK, spin_context_host_memory(context, &host, &len));
    HOLDS(len == 1024);
    EXPECT(SPIN_OK, spin_events_open(client, spin_context_id(context), &events));
    EXPECT(SPIN_E_NO_EVENT, spin_events_wait(events, 1000));
    EXPECT(SPIN_E_NO_EVENT, spin_events_poll(events, &event));
    HOLDS(event.kind == 0 && spin_events_text(events)[0] == '\0');
    struct pollfd waits = {.events = POLLIN};
    int again;
    uint64_t rings;
    EXPECT(SPIN_E_NULL, spin_events_fd(events, NULL));
    EXPECT(SPIN_OK, spin_events_fd(events, &waits.fd));
    EXPECT(SPIN_OK, spin_events_fd(events, &again));
    HOLDS(again == waits.fd && read(again, &rings, sizeof rings) == sizeof rings);
    HOLDS(poll(&waits, 1, 0) == 0);
    EXPECT(SPIN_OK, spin_replay(client, frames, size, NULL, &sent));
    EXPECT(SPIN_OK, spin_capture_bytes(sent, &start, &len));
    HOLDS(len == 24 && memcmp(start, frames, 4) == 0);
    spin_capture_free(sent);
    HOLDS(poll(&waits, 1, 5000) == 1);
    EXPECT(SPIN_OK, spin_events_wait(events, 5000000));
    EXPECT(SPIN_OK, spin_events_poll(events, &event));
    HOLDS(event.kind == SPIN_EVENT_COPIED_TO_HOST && event.length == 4 && event.host == (uintptr_t)host + 4 * 3);
    HOLDS(strstr(spin_events_text(events), "4 bytes copied to host address") != NULL);
    spin_events_close(events);
}

/* Memory that is none of a context's. */
static void regions(spin_client *client, uint32_t context) {
    spin_region *region;
    void *start;
    size_t len;
    int pipes[2];
    EXPECT(SPIN_E_NULL, spin_region_alloc(4096, 0, NULL));
    EXPECT(SPIN_E_MEMORY, spin_region_alloc(0, 0, &region));
    HOLDS(region == NULL);
    EXPECT(SPIN_E_MEMORY, spin_region_alloc(4096, 2 << 20, &region));
    HOLDS(says("whole pages"));
    EXPECT(SPIN_OK, spin_region_alloc(4096, 0, &region));
    EXPECT(SPIN_E_NULL, spin_region_memory(NULL, &start, &len));
    EXPECT(SPIN_E_NULL, spin_region_memory(region, NULL, &len));
    EXPECT(SPIN_OK, spin_region_memory(region, &start, &len));
    EXPECT(SPIN_E_NULL, spin_attach(client, context, NULL));
    EXPECT(SPIN_E_NULL, spin_attach(NULL, context, region));
    EXPECT(SPIN_E_REFUSED, spin_attach(client, context + 1, region));
    EXPECT(SPIN_E_VALUE, spin_attach_fd(client, context, -1, start, len));
    HOLDS(says("spin_region_alloc"));
    HOLDS(pipe(pipes) == 0);
    EXPECT(SPIN_E_REFUSED, spin_attach_fd(client, context, pipes[0], start, len));
    HOLDS(says("not of a memory file"));
    EXPECT(SPIN_E_REFUSED, spin_detach(client, context, start));
    EXPECT(SPIN_OK, spin_attach(client, context, region));
    EXPECT(SPIN_E_REFUSED, spin_attach(client, context, region));
    EXPECT(SPIN_OK, spin_detach(client, context, start));
    close(pipes[0]), close(pipes[1]), spin_region_free(region);
}

/* A daemon that reads nothing, answers with a text if there is one, and closes the connection. */
static spin_client *closed(const char *folder, const char *answer) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    spin_client *client;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/closed.sock", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    HOLDS(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0);
    EXPECT(SPIN_OK, spin_connect(address.sun_path, &client));
    int peer = accept(listener, NULL, NULL);
    HOLDS(write(peer, answer, strlen(answer)) == (ssize_t)strlen(answer));
    close(peer), close(listener), unlink(address.sun_path);
    return client;
}

/* No signal ends the program (SIGPIPE), also when it goes on after the first error. */
static void closed_connection(const char *folder) {
    spin_stats *stats = (spin_stats *)&stats;
    spin_client *client = closed(folder, "");
    for (int i = 0; i < 3; i++) EXPECT(SPIN_E_CLOSED, spin_stats_read(client, &stats));
    HOLDS(stats == NULL && strlen(spin_last_error()) > 0);
    EXPECT(SPIN_E_CLOSED, spin_remove(client, 1));
    spin_disconnect(client);
    client = closed(folder, "not the protocol of spind");
    EXPECT(SPIN_E_PROTOCOL, spin_stats_read(client, &stats));
    spin_disconnect(client);
    EXPECT(SPIN_E_CONNECT, spin_connect("/no/such.sock", &client));
    HOLDS(client == NULL && says("/no/such.sock"));
}

/* Threads share a client. Each has its own last error. */
static void *ask(void *client) {
    spin_stats *stats;
    char name[32], expected[64];
    snprintf(name, sizeof name, "thread-%lx", (unsigned long)pthread_self());
    snprintf(expected, sizeof expected, "no context \"%s\"", name);
    HOLDS(spin_last_error()[0] == '\0');
    for (int i = 0; i < 20; i++) {
        uint32_t found;
        EXPECT(SPIN_OK, spin_stats_read(client, &stats));
        spin_stats_free(stats);
        EXPECT(SPIN_E_NOT_FOUND, spin_find(client, name, &found));
        HOLDS(says(expected));
    }
    return NULL;
}

static void threads(spin_client *client) {
    pthread_t running[4];
    for (int i = 0; i < 4; i++) HOLDS(pthread_create(&running[i], NULL, ask, client) == 0);
    for (int i = 0; i < 4; i++) pthread_join(running[i], NULL);
}

int main(int argc, char **argv) {
    spin_client *client;
    spin_image *image;
    spin_options *options;
    spin_context *context;
    if (argc != 5) return 2;
    HOLDS(spin_last_error()[0] == '\0');
    EXPECT(SPIN_OK, spin_connect(argv[1], &client));
    EXPECT(SPIN_OK, spin_image_load(argv[2], &image));
    EXPECT(SPIN_OK, spin_options_new(&options));
    EXPECT(SPIN_E_REFUSED, spin_install(client, image, options, &context)); /* no rule */
    HOLDS(context == NULL && says("rule"));
    EXPECT(SPIN_OK, spin_options_set_name(options, "misuse"));
    EXPECT(SPIN_OK, spin_options_add_rule(options, "udp dport 9999"));
    EXPECT(SPIN_OK, spin_options_set_handler_memory(options, 64));
    EXPECT(SPIN_OK, spin_options_set_host_memory(options, 1024));
    EXPECT(SPIN_OK, spin_install(client, image, options, &context));
    null_pointers(client, options, image, context);
    bad_texts(client, options, spin_context_id(context));
    refusals(client, context, image);
    events(client, context, argv[4]);
    regions(client, spin_context_id(context));
    threads(client);
    closed_connection(argv[3]);
    spin_disconnect(client);
    HOLDS(spin_context_id(context) > 0); /* handles do not depend on each other */
    spin_context_free(context), spin_image_free(image), spin_options_free(options);
    puts("misuse: all refused");
    return 0;
}
