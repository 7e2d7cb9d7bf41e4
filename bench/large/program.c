#include "operations.h"

static heap *heap_of(uint8_t *memory) { return (heap *)(memory + WORLD_BYTES); }

static uint32_t mix(uint32_t sum, uint32_t value) { return rotl(sum, 5) ^ mix32(value + sum); }

/* The basic types are in the first slots, and stay. */
bool program_open(uint8_t *memory, uint32_t bytes) {
    world *w = (world *)memory;
    if (bytes < WORLD_BYTES + 16384) return false;
    heap *h = heap_of(memory);
    if (!w->is_ready) {
        heap_init(h, bytes - WORLD_BYTES);
        w->crc_tables = heap_zalloc(h, 4 * 256, sizeof(uint32_t));
        w->aes_tables = 0;
        w->bigs = heap_zalloc(h, BIGS * BIG_WORDS, sizeof(uint32_t));
        crc32_tables(heap_at(h, w->crc_tables), 0xedb88320);
        if (!cache_init(h, &w->cache, 8, 4)) return false;
        w->is_ready = 1;
    }
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        if (w->types[i] != 0) continue;
        w->types[i] = type_basic(h, (element)i);
        if (w->types[i] != 0) type_commit(h, w->types[i]);
    }
    w->messages++;
    w->checksum = mix(w->checksum, w->messages);
    return true;
}

/* Operations by number. */
static const operation_kind *kind_of(uint32_t kind) {
    static const struct {
        const operation_kind *kinds;
        uint32_t count;
    } groups[] = {{structure_operations, 10}, {type_operations, 6}, {data_operations, 9}, {text_operations, 5}};
    kind %= KINDS;
    for (uint32_t i = 0; i < 4; i++) {
        if (kind < groups[i].count) return &groups[i].kinds[kind];
        kind -= groups[i].count;
    }
    return NULL;
}

void program_run(uint8_t *memory, uint32_t bytes, const uint8_t *steps, uint32_t length) {
    world *w = (world *)memory;
    if (bytes < WORLD_BYTES || !w->is_ready) return;
    w->packets++;
    for (uint32_t at = 0; at + sizeof(step) <= length; at += sizeof(step)) {
        step s;
        __builtin_memcpy(&s, steps + at, sizeof s);
        const operation_kind *kind = kind_of(s.kind);
        uint32_t result = kind->run(w, heap_of(memory), &s);
        w->operations++;
        w->counts[s.kind % KINDS]++;
        w->checksum = mix(w->checksum, result + fnv1a(kind->name, 4));
    }
}

static bool add_block(void *context, ref block, uint32_t bytes, bool is_free) {
    uint32_t *sum = context;
    *sum = mix(*sum, block * 2 + is_free + bytes);
    return true;
}

void program_close(uint8_t *memory, uint32_t bytes) {
    world *w = (world *)memory;
    if (bytes < WORLD_BYTES || !w->is_ready) return;
    heap *h = heap_of(memory);
    uint32_t sum = heap_check(h), broken = sum != 0;
    heap_walk(h, add_block, &sum);
    for (uint32_t i = 0; i < CONTAINERS; i++) {
        uint32_t result = containers[i].check(h, w->containers[i]);
        broken += result == 0;
        sum = mix(sum, result);
    }
    for (uint32_t i = 0; i < SLOTS; i++) sum = mix(sum, blob_hash(h, &w->blobs[i]));
    /* Now and then everything is freed. */
    if (w->messages % 8 == 0) {
        for (uint32_t i = 0; i < CONTAINERS; i++) containers[i].clear(h, w->containers[i]);
        for (uint32_t i = 0; i < SLOTS; i++) {
            heap_free(h, w->blobs[i].at);
            w->blobs[i] = (blob){0, 0};
            type_release(h, w->types[i]);
            w->types[i] = 0;
        }
        timers_clear(h, &w->timers);
        broken += heap_check(h) != 0;
        sum = mix(sum, h->used);
    }
    w->broken += broken;
    w->checksum = mix(w->checksum, sum);
}
