/* Sorting: of several types of elements, and of any with a comparison function. */
#ifndef LARGE_SORT_H
#define LARGE_SORT_H

#include "heap.h"

/* Negative, 0 or positive as `a` is before, equal to or behind `b`. */
typedef int comparison(const void *a, const void *b);

/* A key with a value, ordered by the key alone. */
typedef struct record {
    uint32_t key, value;
} record;

void sort_any(void *base, uint32_t count, uint32_t width, comparison *compare);
/* Index of an element that is equal to `key`, or ~0. */
uint32_t search_any(const void *key, const void *base, uint32_t count, uint32_t width, comparison *compare);
void radix_sort(uint32_t *a, uint32_t count, uint32_t *room);

/* Ways to sort an array whose bytes are random; each returns a hash of the result. */
typedef struct sorter {
    const char *name;
    uint32_t width;
    uint32_t (*run)(void *base, uint32_t count, void *room, uint32_t way);
} sorter;

enum { SORTERS = 11 };
extern const sorter sorters[SORTERS];

#endif
