#include "sort.h"

#include "digest.h"

#define LESS(a, b) ((a) < (b))
#define MORE(a, b) ((a) > (b))
#define KEY_LESS(a, b) ((a).key < (b).key)

#define NAME u8
#define TYPE uint8_t
#define BEFORE LESS
#include "sort.inc"

#define NAME u16
#define TYPE uint16_t
#define BEFORE LESS
#include "sort.inc"

#define NAME i16
#define TYPE int16_t
#define BEFORE MORE
#include "sort.inc"

#define NAME u32
#define TYPE uint32_t
#define BEFORE LESS
#include "sort.inc"

#define NAME i32
#define TYPE int32_t
#define BEFORE LESS
#include "sort.inc"

#define NAME u64
#define TYPE uint64_t
#define BEFORE LESS
#include "sort.inc"

#define NAME i8
#define TYPE int8_t
#define BEFORE LESS
#include "sort.inc"

#define NAME i64
#define TYPE int64_t
#define BEFORE MORE
#include "sort.inc"

#define NAME records
#define TYPE record
#define BEFORE KEY_LESS
#include "sort.inc"

static void exchange(uint8_t *a, uint8_t *b, uint32_t width) {
    for (; width >= 4; width -= 4, a += 4, b += 4) {
        uint32_t other = load32(a);
        store32(a, load32(b));
        store32(b, other);
    }
    for (; width > 0; width--, a++, b++) {
        uint8_t other = *a;
        *a = *b;
        *b = other;
    }
}

/* Shell sort with Ciura's gaps: no stack, and no element is copied out. */
void sort_any(void *base, uint32_t count, uint32_t width, comparison *compare) {
    static const uint32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    uint8_t *a = base;
    for (uint32_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        uint32_t gap = gaps[g];
        for (uint32_t i = gap; i < count; i++)
            for (uint32_t at = i; at >= gap && compare(a + at * width, a + (at - gap) * width) < 0; at -= gap)
                exchange(a + at * width, a + (at - gap) * width, width);
    }
}

uint32_t search_any(const void *key, const void *base, uint32_t count, uint32_t width, comparison *compare) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare(key, (const uint8_t *)base + middle * width);
        if (order == 0) return middle;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return ~0u;
}

void radix_sort(uint32_t *a, uint32_t count, uint32_t *room) {
    for (uint32_t shift = 0; shift < 32; shift += 4) {
        uint32_t starts[16] = {0}, sum = 0;
        for (uint32_t i = 0; i < count; i++) starts[a[i] >> shift & 15]++;
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t number = starts[i];
            starts[i] = sum;
            sum += number;
        }
        for (uint32_t i = 0; i < count; i++) room[starts[a[i] >> shift & 15]++] = a[i];
        uint32_t *other = a;
        a = room;
        room = other;
    }
}

#define SORTER(NAME, TYPE)                                                                      \
    static uint32_t run_##NAME(void *base, uint32_t count, void *room, uint32_t way) {          \
        TYPE *a = base;                                                                         \
        uint32_t extra = 0;                                                                     \
        switch (way & 3) {                                                                      \
            case 0: NAME##_sort(a, count); break;                                               \
            case 1: NAME##_merge_sort(a, count, room); break;                                   \
            case 2: NAME##_heap(a, count); break;                                               \
            default: {                                                                          \
                TYPE middle = NAME##_select(a, count, count / 2);                               \
                NAME##_sort(a, count);                                                          \
                extra = murmur3(&middle, sizeof middle, NAME##_lower_bound(a, count, middle));  \
            }                                                                                   \
        }                                                                                       \
        return xxh32(base, count * (uint32_t)sizeof(TYPE), extra);                              \
    }

SORTER(u8, uint8_t)
SORTER(u16, uint16_t)
SORTER(i16, int16_t)
SORTER(u32, uint32_t)
SORTER(i32, int32_t)
SORTER(u64, uint64_t)
SORTER(i8, int8_t)
SORTER(i64, int64_t)
SORTER(records, record)

static uint32_t run_radix(void *base, uint32_t count, void *room, uint32_t way) {
    radix_sort(base, count, room);
    return xxh32(base, count * 4, way);
}

static int by_bytes(const void *a, const void *b) { return memcmp(a, b, 12); }

static int by_bits(const void *a, const void *b) {
    uint32_t left = load32(a), right = load32(b);
    int bits = __builtin_popcount(left) - __builtin_popcount(right);
    return bits != 0 ? bits : left < right ? -1 : left > right;
}

static int by_reversed(const void *a, const void *b) {
    uint32_t left = __builtin_bswap32(load32(a)), right = __builtin_bswap32(load32(b));
    int order = left < right ? 1 : left > right ? -1 : 0;
    return order != 0 ? order : memcmp(b, a, 12);
}

static uint32_t run_any(void *base, uint32_t count, void *room, uint32_t way) {
    static comparison *const comparisons[3] = {by_bytes, by_bits, by_reversed};
    comparison *compare = comparisons[way % 3];
    memcpy(room, base, 12);
    sort_any(base, count, 12, compare);
    uint32_t found = search_any(room, base, count, 12, compare);
    return xxh32(base, count * 12, found == ~0u);
}

const sorter sorters[SORTERS] = {
    {"u8", 1, run_u8},   {"u16", 2, run_u16}, {"i16", 2, run_i16},         {"u32", 4, run_u32},   {"i32", 4, run_i32},
    {"u64", 8, run_u64}, {"i8", 1, run_i8},   {"i64", 8, run_i64},         {"records", 8, run_records}, {"radix", 4, run_radix}, {"any", 12, run_any},
};
