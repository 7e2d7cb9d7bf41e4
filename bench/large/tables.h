/* Hash tables and trees of several types of keys. */
#ifndef LARGE_TABLES_H
#define LARGE_TABLES_H

#include "digest.h"
#include "heap.h"

/* A connection: addresses and ports. */
typedef struct flow_key {
    uint32_t from, to;
    uint16_t from_port, to_port;
} flow_key;

/* An Ethernet address. */
typedef struct mac_key {
    uint8_t bytes[6];
    uint16_t vlan;
} mac_key;

/* Words of the state of any container. */
enum { CONTAINER_WORDS = 5 };

/* A port of a protocol. */
typedef struct port_key {
    uint16_t port, protocol;
} port_key;

/* An IPv6 address. */
typedef struct wide_key {
    uint64_t high, low;
} wide_key;

/* Operations of a table or tree, whose state is `words`. Keys are made from 64 bits. */
typedef struct container {
    const char *name;
    uint32_t (*insert)(heap *h, uint32_t *words, uint64_t key, uint32_t value);
    uint32_t (*find)(heap *h, const uint32_t *words, uint64_t key);
    uint32_t (*erase)(heap *h, uint32_t *words, uint64_t key);
    uint32_t (*sum)(heap *h, const uint32_t *words, uint64_t from, uint64_t to);
    uint32_t (*check)(heap *h, const uint32_t *words);
    void (*clear)(heap *h, uint32_t *words);
} container;

enum { CONTAINERS = 12 };
extern const container containers[CONTAINERS];

/* A chained hash table of strings. */
typedef struct names {
    uint32_t buckets; /* a power of two, or 0 */
    uint32_t count;
    ref heads;
    ref oldest, newest; /* in order of insertion */
} names;

typedef struct name_node {
    ref next, older, newer;
    uint32_t hash, value, length;
    char text[];
} name_node;

/* The node of a name, or 0. */
ref names_find(heap *h, const names *t, const char *text, uint32_t length);
/* 0: replaced, 1: new, 2: no memory. */
uint32_t names_insert(heap *h, names *t, const char *text, uint32_t length, uint32_t value);
bool names_erase(heap *h, names *t, const char *text, uint32_t length);
bool names_rename(heap *h, names *t, const char *from, uint32_t from_length, const char *to, uint32_t to_length);
/* Number of names that match a pattern with `*`, `?` and `[a-z]`; `sum` mixes their values. */
uint32_t names_match(heap *h, const names *t, const char *pattern, uint32_t *sum);
uint32_t names_check(heap *h, const names *t);
void names_clear(heap *h, names *t);
bool glob_match(const char *pattern, const char *text);

#endif
