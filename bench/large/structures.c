/* Operations on memory, tables, trees, a cache and timers. */
#include "operations.h"

uint32_t blob_hash(heap *h, const blob *b) { return b->at == 0 ? 0 : xxh32(heap_at(h, b->at), b->length, b->length); }

static void fill(uint8_t *bytes, uint32_t length, uint32_t seed) {
    static const char words[] = "the quick brown fox jumps over the lazy dog and runs away from the very quick dog ";
    uint32_t random = seed;
    switch (seed >> 28 & 3) {
        case 0:
            for (uint32_t i = 0; i < length; i++) bytes[i] = (uint8_t)(next_random(&random) >> 8);
            break;
        case 1:
            for (uint32_t i = 0; i < length; i++) bytes[i] = (uint8_t)words[(i + seed % 7 * (i / 64)) % (sizeof words - 1)];
            break;
        case 2:
            for (uint32_t i = 0, run = 0, value = 0; i < length; i++, run--) {
                if (run == 0) {
                    run = 1 + (next_random(&random) >> 9 & 15);
                    value = random >> 20;
                }
                bytes[i] = (uint8_t)value;
            }
            break;
        default:
            for (uint32_t i = 0, value = seed; i < length; i += 4, value += next_random(&random) & 0x3ff)
                for (uint32_t k = i; k < i + 4 && k < length; k++) bytes[k] = (uint8_t)(value >> 8 * (k - i));
    }
}

bool blob_make(heap *h, blob *b, uint32_t length, uint32_t seed) {
    heap_free(h, b->at);
    *b = (blob){0, 0};
    uint32_t way = seed >> 20 & 3;
    ref at = way == 0 ? heap_aligned(h, 16u << (seed & 3), length) : way == 1 ? heap_zalloc(h, length, 1) : heap_alloc(h, length);
    if (at == 0) return false;
    fill(heap_at(h, at), length, seed);
    *b = (blob){at, length};
    return true;
}

static uint32_t make_blob(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    return blob_make(h, b, 16 + s->amount % 1500, s->seed) ? blob_hash(h, b) ^ b->at : NO_MEMORY;
}

static uint32_t resize_blob(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    uint32_t length = 16 + s->amount % 2000, before = b->length;
    ref at = heap_realloc(h, b->at, length);
    if (at == 0) return NO_MEMORY;
    *b = (blob){at, length};
    if (length > before) fill((uint8_t *)heap_at(h, at) + before, length - before, s->seed);
    return blob_hash(h, b) + heap_usable(h, at);
}

static uint32_t free_blob(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    uint32_t sum = blob_hash(h, b);
    heap_free(h, b->at);
    *b = (blob){0, 0};
    return sum + heap_largest(h);
}

static uint32_t insert(world *w, heap *h, const step *s) {
    uint32_t number = s->slot % CONTAINERS, seed = s->seed, sum = 0;
    for (uint32_t i = 0; i < 1u + s->amount % 24; i++) {
        uint64_t key = next_key(&seed);
        sum = rotl(sum, 2) + containers[number].insert(h, w->containers[number], key, seed ^ i);
    }
    return sum;
}

static uint32_t find(world *w, heap *h, const step *s) {
    uint32_t number = s->slot % CONTAINERS, seed = s->seed, sum = 0;
    for (uint32_t i = 0; i < 1u + s->amount % 24; i++) sum = rotl(sum, 3) + containers[number].find(h, w->containers[number], next_key(&seed));
    return sum;
}

static uint32_t erase(world *w, heap *h, const step *s) {
    uint32_t number = s->slot % CONTAINERS, seed = s->seed, sum = 0;
    for (uint32_t i = 0; i < 1u + s->amount % 24; i++) sum = sum * 2 + containers[number].erase(h, w->containers[number], next_key(&seed));
    return sum;
}

static uint32_t sum_range(world *w, heap *h, const step *s) {
    uint32_t number = s->slot % CONTAINERS, seed = s->seed;
    uint64_t from = next_key(&seed), to = next_key(&seed);
    uint32_t sum = containers[number].sum(h, w->containers[number], from, to);
    return s->amount % 8 == 0 ? sum + containers[number].check(h, w->containers[number]) : sum;
}

static uint32_t load_line(void *context, uint32_t key) {
    const world *w = context;
    return mix32(key) + w->messages;
}

static void line_evicted(void *context, uint32_t key, uint32_t value) {
    world *w = context;
    w->variables[key % VARIABLES] ^= (int32_t)value;
}

static uint32_t use_cache(world *w, heap *h, const step *s) {
    static const cache_policy policy = {mix32, load_line, line_evicted};
    uint32_t seed = s->seed, sum = 0;
    for (uint32_t i = 0; i < 1u + s->amount % 32; i++) {
        uint32_t key = next_random(&seed) >> 5 & 63;
        if ((seed & 15) == 0) sum += cache_drop(h, &w->cache, &policy, w, key);
        else sum = rotl(sum, 1) ^ cache_get(h, &w->cache, &policy, w, key);
    }
    if (s->amount % 64 == 7) {
        cache_clear(h, &w->cache);
        cache_init(h, &w->cache, 8, 4);
    }
    return sum + w->cache.hits;
}

static uint32_t once(void *context, uint32_t number, uint32_t now) {
    world *w = context;
    w->variables[1] += (int32_t)(number ^ now);
    return 0;
}

static uint32_t periodic(void *context, uint32_t number, uint32_t now) {
    world *w = context;
    w->variables[2] ^= (int32_t)mix32(number + now);
    return (mix32(number + now) & 3) == 0 ? 0 : 40 + (number & 31);
}

static uint32_t reschedules(void *context, uint32_t number, uint32_t now) {
    world *w = context;
    return (uint32_t)(w->variables[1] + (int32_t)number) % 3 == 0 ? 25 + (now & 15) : 0;
}

static uint32_t use_timers(world *w, heap *h, const step *s) {
    static timer_action *const actions[3] = {once, periodic, reschedules};
    uint32_t seed = s->seed, sum = 0;
    for (uint32_t i = 0; i < 1u + s->amount % 12 && w->timers.count < 64; i++) {
        uint32_t random = next_random(&seed);
        sum = rotl(sum, 3) + timers_add(h, &w->timers, random & 255, (random >> 9) % 3);
    }
    if (s->amount & 1) sum += timers_cancel(h, &w->timers, w->timers.next_number - (seed & 7));
    sum += timers_advance(h, &w->timers, 16 + (s->amount >> 8 & 63), actions, w);
    return sum ^ w->timers.count;
}

const operation_kind structure_operations[10] = {
    {"make", make_blob}, {"resize", resize_blob}, {"free", free_blob}, {"insert", insert}, {"insert", insert},
    {"find", find},      {"erase", erase},        {"sums", sum_range}, {"cache", use_cache}, {"timers", use_timers},
};
