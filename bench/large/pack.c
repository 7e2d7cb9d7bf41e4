/* Packing, unpacking and reductions. */
#include "datatype.h"

/* Moves pieces of a constant length: the compiler unrolls the copy and the loop. */
#define GATHER(BYTES)                                                                                                  \
    static void gather_##BYTES(uint8_t *restrict to, const uint8_t *restrict from, int32_t step, uint32_t count) {     \
        for (; count > 0; count--, to += BYTES, from += step) __builtin_memcpy(to, from, BYTES);                       \
    }                                                                                                                  \
    static void scatter_##BYTES(uint8_t *restrict to, const uint8_t *restrict from, int32_t step, uint32_t count) {    \
        for (; count > 0; count--, to += step, from += BYTES) __builtin_memcpy(to, from, BYTES);                       \
    }

GATHER(1)
GATHER(2)
GATHER(4)
GATHER(8)
GATHER(12)
GATHER(16)
GATHER(24)
GATHER(32)
GATHER(48)
GATHER(64)

typedef void mover(uint8_t *restrict to, const uint8_t *restrict from, int32_t step, uint32_t count);

static const struct {
    uint32_t bytes;
    mover *gather, *scatter;
} movers[] = {
    {1, gather_1, scatter_1},    {2, gather_2, scatter_2},    {4, gather_4, scatter_4},    {8, gather_8, scatter_8},    {12, gather_12, scatter_12},
    {16, gather_16, scatter_16}, {24, gather_24, scatter_24}, {32, gather_32, scatter_32}, {48, gather_48, scatter_48}, {64, gather_64, scatter_64},
};

static int mover_of(uint32_t bytes) {
    for (uint32_t i = 0; i < sizeof movers / sizeof movers[0]; i++)
        if (movers[i].bytes == bytes) return (int)i;
    return -1;
}

/* Where a partial copy begins: piece of the element, and bytes to skip in it. */
static uint32_t first_piece(const piece *pieces, uint32_t count, uint32_t *skip) {
    uint32_t i = 0;
    while (i < count && *skip >= pieces[i].bytes) *skip -= pieces[i++].bytes;
    return i;
}

/* Both directions: `pack` selects, and is a constant in each caller. */
static inline __attribute__((always_inline)) uint32_t
move(heap *h, ref type, uint32_t count, uint8_t *memory, uint32_t from, uint8_t *packed, uint32_t bytes, bool pack) {
    const datatype *t = type_at(h, type);
    if (!t->is_committed || t->size == 0) return 0;
    const piece *pieces = heap_at(h, t->pieces);
    int32_t extent = t->high - t->low;
    uint32_t element = from / t->size, skip = from % t->size, done = 0;
    uint32_t next = first_piece(pieces, t->piece_count, &skip);
    int kernel = t->step != 0 ? mover_of(pieces[0].bytes) : -1;
    for (; element < count && done < bytes; element++, next = 0) {
        uint8_t *base = memory + (int32_t)element * extent;
        while (next < t->piece_count && done < bytes) {
            const piece *p = &pieces[next];
            uint32_t left = bytes - done, whole = p->bytes - skip;
            if (kernel >= 0 && skip == 0 && left >= p->bytes) {
                uint32_t run = left / p->bytes < t->piece_count - next ? left / p->bytes : t->piece_count - next;
                if (pack) movers[kernel].gather(packed + done, base + p->at, t->step, run);
                else movers[kernel].scatter(base + p->at, packed + done, t->step, run);
                done += run * p->bytes;
                next += run;
                continue;
            }
            uint32_t part = whole < left ? whole : left;
            if (pack) memcpy(packed + done, base + p->at + skip, part);
            else memcpy(base + p->at + skip, packed + done, part);
            done += part;
            if (part < whole) break;
            skip = 0;
            next++;
        }
    }
    return done;
}

uint32_t type_pack(heap *h, ref t, uint32_t count, const uint8_t *memory, uint32_t from, uint8_t *packed, uint32_t bytes) {
    return move(h, t, count, (uint8_t *)memory, from, packed, bytes, true);
}

uint32_t type_unpack(heap *h, ref t, uint32_t count, uint8_t *memory, uint32_t from, const uint8_t *packed, uint32_t bytes) {
    return move(h, t, count, memory, from, (uint8_t *)packed, bytes, false);
}

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LEAST(a, b) ((b) < (a) ? (b) : (a))
#define MOST(a, b) ((b) > (a) ? (b) : (a))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))
#define XOR(a, b) ((a) ^ (b))

/* Arithmetic is done without sign, so that it wraps. */
#define REDUCE(NAME, TYPE, WIDE, OP)                                                            \
    static void NAME(void *restrict into, const void *restrict from, uint32_t count) {          \
        TYPE *a = into;                                                                         \
        const TYPE *b = from;                                                                   \
        for (uint32_t i = 0; i < count; i++) a[i] = (TYPE)OP((WIDE)a[i], (WIDE)b[i]);           \
    }
#define REDUCE_ALL(TYPE, WIDE)                   \
    REDUCE(sum_##TYPE, TYPE, WIDE, ADD)          \
    REDUCE(product_##TYPE, TYPE, WIDE, MULTIPLY) \
    REDUCE(least_##TYPE, TYPE, TYPE, LEAST)      \
    REDUCE(most_##TYPE, TYPE, TYPE, MOST)        \
    REDUCE(and_##TYPE, TYPE, WIDE, AND)          \
    REDUCE(or_##TYPE, TYPE, WIDE, OR)            \
    REDUCE(xor_##TYPE, TYPE, WIDE, XOR)

REDUCE_ALL(int8_t, uint32_t)
REDUCE_ALL(uint8_t, uint32_t)
REDUCE_ALL(int16_t, uint32_t)
REDUCE_ALL(uint16_t, uint32_t)
REDUCE_ALL(int32_t, uint32_t)
REDUCE_ALL(uint32_t, uint32_t)
REDUCE_ALL(int64_t, uint64_t)
REDUCE_ALL(uint64_t, uint64_t)

/* A value and where it was found (MPI 4.0, 6.9.4). */
typedef struct pair {
    int32_t value, index;
} pair;

static void least_location(void *restrict into, const void *restrict from, uint32_t count) {
    pair *a = into;
    const pair *b = from;
    for (uint32_t i = 0; i < count; i++) {
        if (b[i].value < a[i].value) a[i] = b[i];
        else if (b[i].value == a[i].value && b[i].index < a[i].index) a[i].index = b[i].index;
    }
}

typedef void reducer(void *restrict into, const void *restrict from, uint32_t count);

#define REDUCERS(TYPE) \
    {sum_##TYPE, product_##TYPE, least_##TYPE, most_##TYPE, and_##TYPE, or_##TYPE, xor_##TYPE, NULL}

static reducer *const reducers[ELEMENTS][REDUCTIONS] = {
    REDUCERS(int8_t),  REDUCERS(uint8_t), REDUCERS(int16_t),  REDUCERS(uint16_t), REDUCERS(int32_t),
    REDUCERS(uint32_t), REDUCERS(int64_t), REDUCERS(uint64_t), {[MIN_LOCATION] = least_location},
};

bool reduce(reduction op, element e, void *into, const void *from, uint32_t count) {
    reducer *f = reducers[e][op];
    if (f == NULL) return false;
    f(into, from, count);
    return true;
}
