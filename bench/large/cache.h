/* A cache of the most recently used, and timers in a heap. */
#ifndef LARGE_CACHE_H
#define LARGE_CACHE_H

#include "heap.h"

/* What a cache does with its entries. */
typedef struct cache_policy {
    uint32_t (*hash)(uint32_t key);
    /* Makes the value of a key that is not there. */
    uint32_t (*load)(void *context, uint32_t key);
    /* Told of each entry that leaves. */
    void (*evicted)(void *context, uint32_t key, uint32_t value);
} cache_policy;

typedef struct cache {
    uint32_t sets; /* a power of two */
    uint32_t ways;
    ref lines;
    uint32_t hits, misses, clock;
} cache;

bool cache_init(heap *h, cache *c, uint32_t sets, uint32_t ways);
uint32_t cache_get(heap *h, cache *c, const cache_policy *policy, void *context, uint32_t key);
bool cache_drop(heap *h, cache *c, const cache_policy *policy, void *context, uint32_t key);
void cache_clear(heap *h, cache *c);

/* A timer that is due; returns the delay until it is due again, or 0. */
typedef uint32_t timer_action(void *context, uint32_t number, uint32_t now);

typedef struct timers {
    uint32_t count, room, now, next_number;
    ref entries;
} timers;

/* Number of the timer, or 0. */
uint32_t timers_add(heap *h, timers *t, uint32_t delay, uint32_t kind);
bool timers_cancel(heap *h, timers *t, uint32_t number);
/* Advances the time; returns the number of actions. */
uint32_t timers_advance(heap *h, timers *t, uint32_t by, timer_action *const *actions, void *context);
void timers_clear(heap *h, timers *t);

/* Distance between two texts in insertions, removals, changes and exchanges, at most `limit`; `room` has 3 * (b_length + 1) words. */
uint32_t edit_distance(const uint8_t *a, uint32_t a_length, const uint8_t *b, uint32_t b_length, uint32_t limit, uint32_t *room);
/* Length of the longest common subsequence. */
uint32_t common_length(const uint8_t *a, uint32_t a_length, const uint8_t *b, uint32_t b_length, uint32_t *room);

#endif
