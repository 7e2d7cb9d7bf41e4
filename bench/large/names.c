#include "tables.h"

static name_node *node(heap *h, ref at) { return heap_at(h, at); }
static ref *head(heap *h, const names *t, uint32_t hash) { return (ref *)heap_at(h, t->heads) + (hash & (t->buckets - 1)); }
static uint32_t hash_of(const char *text, uint32_t length) { return xxh32(text, length, 7); }

/* The link to the node of a name, or to where it would be. */
static ref *link_of(heap *h, const names *t, const char *text, uint32_t length, uint32_t hash) {
    ref *at = head(h, t, hash);
    for (; *at != 0; at = &node(h, *at)->next) {
        const name_node *n = node(h, *at);
        if (n->hash == hash && n->length == length && memcmp(n->text, text, length) == 0) break;
    }
    return at;
}

static bool grow(heap *h, names *t) {
    uint32_t buckets = t->buckets == 0 ? 8 : t->buckets * 2;
    ref heads = heap_zalloc(h, buckets, sizeof(ref));
    if (heads == 0) return false;
    heap_free(h, t->heads);
    t->heads = heads;
    t->buckets = buckets;
    for (ref at = t->oldest; at != 0; at = node(h, at)->newer) {
        ref *first = head(h, t, node(h, at)->hash);
        node(h, at)->next = *first;
        *first = at;
    }
    return true;
}

ref names_find(heap *h, const names *t, const char *text, uint32_t length) {
    return t->buckets == 0 ? 0 : *link_of(h, t, text, length, hash_of(text, length));
}

uint32_t names_insert(heap *h, names *t, const char *text, uint32_t length, uint32_t value) {
    if (t->count >= t->buckets && !grow(h, t) && t->buckets == 0) return 2;
    uint32_t hash = hash_of(text, length);
    ref *link = link_of(h, t, text, length, hash);
    if (*link != 0) {
        node(h, *link)->value = value;
        return 0;
    }
    ref at = heap_alloc(h, (uint32_t)sizeof(name_node) + length + 1);
    if (at == 0) return 2;
    name_node *n = node(h, at);
    n->next = 0;
    n->older = t->newest;
    n->newer = 0;
    n->hash = hash;
    n->value = value;
    n->length = length;
    memcpy(n->text, text, length);
    n->text[length] = 0;
    *link = at;
    if (t->newest != 0) node(h, t->newest)->newer = at;
    else t->oldest = at;
    t->newest = at;
    t->count++;
    return 1;
}

/* Takes a node out of its chain and of the list. */
static ref detach(heap *h, names *t, const char *text, uint32_t length) {
    if (t->buckets == 0) return 0;
    ref *link = link_of(h, t, text, length, hash_of(text, length)), at = *link;
    if (at == 0) return 0;
    const name_node *n = node(h, at);
    *link = n->next;
    *(n->older != 0 ? &node(h, n->older)->newer : &t->oldest) = n->newer;
    *(n->newer != 0 ? &node(h, n->newer)->older : &t->newest) = n->older;
    t->count--;
    return at;
}

bool names_erase(heap *h, names *t, const char *text, uint32_t length) {
    ref at = detach(h, t, text, length);
    heap_free(h, at);
    return at != 0;
}

bool names_rename(heap *h, names *t, const char *from, uint32_t from_length, const char *to, uint32_t to_length) {
    if (names_find(h, t, to, to_length) != 0) return false;
    ref at = detach(h, t, from, from_length);
    if (at == 0) return false;
    uint32_t value = node(h, at)->value;
    heap_free(h, at);
    return names_insert(h, t, to, to_length, value) == 1;
}

/* Whether a character is in the set behind `[`; sets `end` to what follows it. */
static bool in_set(const char *set, char c, const char **end) {
    bool negated = *set == '^', found = false;
    if (negated) set++;
    while (*set != 0 && *set != ']') {
        char low = *set++, high = low;
        if (set[0] == '-' && set[1] != 0 && set[1] != ']') {
            high = set[1];
            set += 2;
        }
        found |= low <= c && c <= high;
    }
    *end = *set == ']' ? set + 1 : set;
    return found != negated;
}

bool glob_match(const char *pattern, const char *text) {
    for (;; pattern++, text++) {
        switch (*pattern) {
            case 0: return *text == 0;
            case '*':
                while (*pattern == '*') pattern++;
                if (*pattern == 0) return true;
                for (; *text != 0; text++)
                    if (glob_match(pattern, text)) return true;
                return false;
            case '?':
                if (*text == 0) return false;
                break;
            case '[': {
                const char *end;
                if (*text == 0 || !in_set(pattern + 1, *text, &end)) return false;
                pattern = end - 1;
                break;
            }
            default:
                if (*pattern != *text) return false;
        }
    }
}

uint32_t names_match(heap *h, const names *t, const char *pattern, uint32_t *sum) {
    uint32_t count = 0;
    for (ref at = t->oldest; at != 0; at = node(h, at)->newer) {
        if (!glob_match(pattern, node(h, at)->text)) continue;
        *sum = rotl(*sum, 9) ^ node(h, at)->value;
        count++;
    }
    return count;
}

uint32_t names_check(heap *h, const names *t) {
    uint32_t sum = 1, chained = 0, listed = 0;
    ref older = 0;
    for (uint32_t i = 0; i < t->buckets; i++)
        for (ref at = *head(h, t, i); at != 0; at = node(h, at)->next, chained++)
            if ((node(h, at)->hash & (t->buckets - 1)) != i) return 0;
    for (ref at = t->oldest; at != 0; older = at, at = node(h, at)->newer, listed++) {
        const name_node *n = node(h, at);
        if (n->older != older || hash_of(n->text, n->length) != n->hash) return 0;
        sum = rotl(sum, 5) ^ (n->hash + n->value);
    }
    return older == t->newest && listed == t->count && chained == t->count ? sum | 1 : 0;
}

void names_clear(heap *h, names *t) {
    for (ref at = t->oldest, next; at != 0; at = next) {
        next = node(h, at)->newer;
        heap_free(h, at);
    }
    heap_free(h, t->heads);
    *t = (names){0, 0, 0, 0, 0};
}
