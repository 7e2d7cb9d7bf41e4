/* A two-level segregated fit allocator (Masmano et al., ECRTS 2004) in one arena. Blocks are named by their offsets, so that an
 * arena has the same contents on every machine. */
#ifndef LARGE_HEAP_H
#define LARGE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *__restrict to, const void *__restrict from, size_t length);
void *memmove(void *to, const void *from, size_t length);
void *memset(void *to, int byte, size_t length);
int memcmp(const void *left, const void *right, size_t length);

/* Offset of a block in the arena; 0 is none. */
typedef uint32_t ref;

enum { HEAP_FIRST = 15, HEAP_SECOND = 16 };

/* At the start of the arena. */
typedef struct heap {
    uint32_t bytes;    /* size of the arena */
    uint32_t used;     /* bytes of allocated blocks, with their headers */
    uint32_t peak;     /* largest value of `used` */
    uint32_t blocks;   /* number of allocated blocks */
    uint32_t failures; /* allocations that found no block */
    uint32_t first_map;
    uint32_t second_map[HEAP_FIRST];
    ref free[HEAP_FIRST][HEAP_SECOND];
    ref lowest; /* first block */
} heap;

/* Calls `visit` for each block, free or not. It returns false to stop. */
typedef bool heap_visitor(void *context, ref block, uint32_t bytes, bool is_free);

static inline void *heap_at(heap *h, ref block) { return (uint8_t *)h + block; }

void heap_init(heap *h, uint32_t bytes);
ref heap_alloc(heap *h, uint32_t bytes);
ref heap_zalloc(heap *h, uint32_t count, uint32_t bytes);
ref heap_aligned(heap *h, uint32_t alignment, uint32_t bytes);
ref heap_realloc(heap *h, ref block, uint32_t bytes);
void heap_free(heap *h, ref block);
uint32_t heap_usable(heap *h, ref block);
bool heap_walk(heap *h, heap_visitor *visit, void *context);
/* 0, or the number of the rule that the arena breaks. */
uint32_t heap_check(heap *h);
/* Largest block that an allocation may get. */
uint32_t heap_largest(heap *h);

#endif
