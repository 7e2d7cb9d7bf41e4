#include "cache.h"

typedef struct line {
    uint32_t key, value, used;
} line;

static line *set_of(heap *h, const cache *c, const cache_policy *policy, uint32_t key) {
    return (line *)heap_at(h, c->lines) + (policy->hash(key) & (c->sets - 1)) * c->ways;
}

bool cache_init(heap *h, cache *c, uint32_t sets, uint32_t ways) {
    *c = (cache){sets, ways, heap_zalloc(h, sets * ways, sizeof(line)), 0, 0, 0};
    return c->lines != 0;
}

uint32_t cache_get(heap *h, cache *c, const cache_policy *policy, void *context, uint32_t key) {
    line *set = set_of(h, c, policy, key), *oldest = set;
    c->clock++;
    for (uint32_t i = 0; i < c->ways; i++) {
        if (set[i].used != 0 && set[i].key == key) {
            set[i].used = c->clock;
            c->hits++;
            return set[i].value;
        }
        if (set[i].used < oldest->used) oldest = &set[i];
    }
    c->misses++;
    uint32_t value = policy->load(context, key);
    if (oldest->used != 0) policy->evicted(context, oldest->key, oldest->value);
    *oldest = (line){key, value, c->clock};
    return value;
}

bool cache_drop(heap *h, cache *c, const cache_policy *policy, void *context, uint32_t key) {
    line *set = set_of(h, c, policy, key);
    for (uint32_t i = 0; i < c->ways; i++) {
        if (set[i].used == 0 || set[i].key != key) continue;
        policy->evicted(context, key, set[i].value);
        set[i] = (line){0, 0, 0};
        return true;
    }
    return false;
}

void cache_clear(heap *h, cache *c) {
    heap_free(h, c->lines);
    *c = (cache){0, 0, 0, 0, 0, 0};
}

typedef struct timer {
    uint32_t due, number, kind;
} timer;

static timer *timer_entries(heap *h, const timers *t) { return heap_at(h, t->entries); }

/* Times wrap. */
static bool is_before(const timer *a, const timer *b) {
    int32_t order = (int32_t)(a->due - b->due);
    return order != 0 ? order < 0 : a->number < b->number;
}

static void rise(timer *e, uint32_t at) {
    timer moved = e[at];
    for (; at > 0 && is_before(&moved, &e[(at - 1) / 4]); at = (at - 1) / 4) e[at] = e[(at - 1) / 4];
    e[at] = moved;
}

/* Four children each. */
static void sink(timer *e, uint32_t at, uint32_t count) {
    timer moved = e[at];
    for (;;) {
        uint32_t first = 4 * at + 1, least = first;
        if (first >= count) break;
        for (uint32_t i = first + 1; i < first + 4 && i < count; i++)
            if (is_before(&e[i], &e[least])) least = i;
        if (!is_before(&e[least], &moved)) break;
        e[at] = e[least];
        at = least;
    }
    e[at] = moved;
}

uint32_t timers_add(heap *h, timers *t, uint32_t delay, uint32_t kind) {
    if (t->count == t->room) {
        uint32_t room = t->room == 0 ? 8 : t->room * 2;
        ref grown = heap_realloc(h, t->entries, room * (uint32_t)sizeof(timer));
        if (grown == 0) return 0;
        t->entries = grown;
        t->room = room;
    }
    timer_entries(h, t)[t->count] = (timer){t->now + delay, ++t->next_number, kind};
    rise(timer_entries(h, t), t->count++);
    return t->next_number;
}

static void take_out(heap *h, timers *t, uint32_t at) {
    timer *e = timer_entries(h, t);
    e[at] = e[--t->count];
    if (at >= t->count) return;
    rise(e, at);
    sink(e, at, t->count);
}

bool timers_cancel(heap *h, timers *t, uint32_t number) {
    const timer *e = t->count == 0 ? NULL : timer_entries(h, t);
    for (uint32_t i = 0; i < t->count; i++) {
        if (e[i].number != number) continue;
        take_out(h, t, i);
        return true;
    }
    return false;
}

uint32_t timers_advance(heap *h, timers *t, uint32_t by, timer_action *const *actions, void *context) {
    uint32_t until = t->now + by, done = 0;
    while (t->count > 0 && (int32_t)(timer_entries(h, t)[0].due - until) <= 0) {
        timer first = timer_entries(h, t)[0];
        t->now = first.due;
        done++;
        uint32_t again = actions[first.kind](context, first.number, t->now);
        if (again == 0) {
            take_out(h, t, 0);
            continue;
        }
        timer_entries(h, t)[0].due += again;
        sink(timer_entries(h, t), 0, t->count);
    }
    t->now = until;
    return done;
}

void timers_clear(heap *h, timers *t) {
    heap_free(h, t->entries);
    *t = (timers){0, 0, 0, 0, 0};
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t edit_distance(const uint8_t *a, uint32_t a_length, const uint8_t *b, uint32_t b_length, uint32_t limit, uint32_t *room) {
    uint32_t *before = room, *row = before + b_length + 1, *next = row + b_length + 1;
    for (uint32_t j = 0; j <= b_length; j++) row[j] = j;
    for (uint32_t i = 1; i <= a_length; i++) {
        uint32_t smallest = next[0] = i;
        for (uint32_t j = 1; j <= b_length; j++) {
            uint32_t cost = least(least(row[j], next[j - 1]) + 1, row[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) cost = least(cost, before[j - 2] + 1);
            next[j] = cost;
            smallest = least(smallest, cost);
        }
        if (smallest > limit) return limit;
        uint32_t *other = before;
        before = row;
        row = next;
        next = other;
    }
    return least(row[b_length], limit);
}

uint32_t common_length(const uint8_t *a, uint32_t a_length, const uint8_t *b, uint32_t b_length, uint32_t *room) {
    memset(room, 0, (b_length + 1) * sizeof *room);
    for (uint32_t i = 0; i < a_length; i++) {
        uint32_t diagonal = 0;
        for (uint32_t j = 0; j < b_length; j++) {
            uint32_t above = room[j + 1];
            if (a[i] == b[j]) room[j + 1] = diagonal + 1;
            else if (room[j] > above) room[j + 1] = room[j];
            diagonal = above;
        }
    }
    return room[b_length];
}
