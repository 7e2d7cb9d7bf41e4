#include "heap.h"

/* Before each block's bytes. `size` includes the header; bit 0: free, bit 1: the block below is free. */
typedef struct block {
    ref below; /* header of the block below, valid if that is free */
    uint32_t size;
    /* Of free blocks, in the bytes. */
    ref next, previous;
} block;

enum { HEADER = 8, LEAST = 16, FREE = 1, FREE_BELOW = 2, SMALL = 128, SHIFT = 6 };

static block *block_at(heap *h, ref at) { return heap_at(h, at); }
static uint32_t size_of(const block *b) { return b->size & ~7u; }

static void classify(uint32_t size, uint32_t *first, uint32_t *second) {
    if (size < SMALL) {
        *first = 0;
        *second = size / (SMALL / HEAP_SECOND);
        return;
    }
    uint32_t log = 31 - (uint32_t)__builtin_clz(size);
    *first = log - SHIFT;
    *second = size >> (log - 4) & (HEAP_SECOND - 1);
}

static void insert(heap *h, ref at) {
    uint32_t first, second;
    block *b = block_at(h, at);
    classify(size_of(b), &first, &second);
    ref head = h->free[first][second];
    b->next = head;
    b->previous = 0;
    if (head != 0) block_at(h, head)->previous = at;
    h->free[first][second] = at;
    h->first_map |= 1u << first;
    h->second_map[first] |= 1u << second;
}

static void detach(heap *h, ref at) {
    uint32_t first, second;
    block *b = block_at(h, at);
    classify(size_of(b), &first, &second);
    if (b->next != 0) block_at(h, b->next)->previous = b->previous;
    if (b->previous != 0) {
        block_at(h, b->previous)->next = b->next;
        return;
    }
    h->free[first][second] = b->next;
    if (b->next != 0) return;
    h->second_map[first] &= ~(1u << second);
    if (h->second_map[first] == 0) h->first_map &= ~(1u << first);
}

static ref above(heap *h, ref at) { return at + size_of(block_at(h, at)); }

/* Marks a block free, and tells the one above. */
static void set_free(heap *h, ref at, uint32_t size) {
    block *b = block_at(h, at);
    b->size = size | FREE | (b->size & FREE_BELOW);
    block *next = block_at(h, at + size);
    next->below = at;
    next->size |= FREE_BELOW;
}

static void set_used(heap *h, ref at, uint32_t size) {
    block *b = block_at(h, at);
    b->size = size | (b->size & FREE_BELOW);
    block_at(h, at + size)->size &= ~(uint32_t)FREE_BELOW;
}

void heap_init(heap *h, uint32_t bytes) {
    memset(h, 0, sizeof *h);
    bytes &= ~7u;
    h->bytes = bytes;
    h->lowest = (uint32_t)((sizeof *h + 7) & ~7u);
    /* The last header is of a used block without bytes, at which merging ends. */
    ref end = bytes - HEADER;
    block_at(h, end)->size = HEADER;
    block_at(h, end)->below = 0;
    block_at(h, h->lowest)->below = 0;
    block_at(h, h->lowest)->size = 0;
    set_free(h, h->lowest, end - h->lowest);
    insert(h, h->lowest);
}

/* A free block of at least `size` bytes: of the next class, all whose blocks are large enough. */
static ref find(heap *h, uint32_t size) {
    uint32_t first, second;
    uint32_t rounded = size;
    if (size >= SMALL) rounded += (1u << (31 - __builtin_clz(size) - 4)) - 1;
    classify(rounded, &first, &second);
    if (first >= HEAP_FIRST) return 0;
    uint32_t map = h->second_map[first] & ~0u << second;
    if (map == 0) {
        uint32_t larger = h->first_map & ~0u << (first + 1);
        if (larger == 0) return 0;
        first = (uint32_t)__builtin_ctz(larger);
        map = h->second_map[first];
    }
    return h->free[first][__builtin_ctz(map)];
}

static uint32_t rounded(uint32_t bytes) {
    uint32_t size = (bytes + HEADER + 7) & ~7u;
    return size < LEAST ? LEAST : size;
}

/* Splits what is above `size` from a block that is in no list, and gives it back. */
static void trim(heap *h, ref at, uint32_t size) {
    uint32_t has = size_of(block_at(h, at));
    if (has - size < LEAST) {
        set_used(h, at, has);
        return;
    }
    set_used(h, at, size);
    ref rest = at + size;
    uint32_t left = has - size;
    block_at(h, rest)->size = 0;
    ref next = rest + left;
    if (block_at(h, next)->size & FREE) {
        detach(h, next);
        left += size_of(block_at(h, next));
    }
    set_free(h, rest, left);
    insert(h, rest);
}

static ref count(heap *h, ref at) {
    h->used += size_of(block_at(h, at));
    if (h->used > h->peak) h->peak = h->used;
    h->blocks++;
    return at + HEADER;
}

ref heap_alloc(heap *h, uint32_t bytes) {
    if (bytes > h->bytes) {
        h->failures++;
        return 0;
    }
    uint32_t size = rounded(bytes);
    ref at = find(h, size);
    if (at == 0) {
        h->failures++;
        return 0;
    }
    detach(h, at);
    trim(h, at, size);
    return count(h, at);
}

ref heap_zalloc(heap *h, uint32_t count, uint32_t bytes) {
    uint64_t all = (uint64_t)count * bytes;
    if (all >> 31) {
        h->failures++;
        return 0;
    }
    ref at = heap_alloc(h, (uint32_t)all);
    if (at != 0) memset(heap_at(h, at), 0, (uint32_t)all);
    return at;
}

ref heap_aligned(heap *h, uint32_t alignment, uint32_t bytes) {
    if (alignment <= 8) return heap_alloc(h, bytes);
    if ((alignment & (alignment - 1)) != 0 || alignment > h->bytes || bytes > h->bytes) {
        h->failures++;
        return 0;
    }
    uint32_t size = rounded(bytes);
    ref at = find(h, size + alignment + LEAST);
    if (at == 0) {
        h->failures++;
        return 0;
    }
    detach(h, at);
    uint32_t has = size_of(block_at(h, at));
    ref user = (at + HEADER + alignment - 1) & ~(alignment - 1);
    uint32_t gap = user - HEADER - at;
    if (gap != 0 && gap < LEAST) gap += alignment;
    if (gap != 0) {
        block_at(h, at + gap)->size = has - gap;
        set_free(h, at, gap);
        insert(h, at);
    }
    trim(h, at + gap, size);
    return count(h, at + gap);
}

void heap_free(heap *h, ref user) {
    if (user == 0) return;
    ref at = user - HEADER;
    block *b = block_at(h, at);
    uint32_t size = size_of(b);
    h->used -= size;
    h->blocks--;
    if (b->size & FREE_BELOW) {
        ref below = b->below;
        detach(h, below);
        size += size_of(block_at(h, below));
        at = below;
    }
    ref next = at + size;
    if (block_at(h, next)->size & FREE) {
        detach(h, next);
        size += size_of(block_at(h, next));
    }
    set_free(h, at, size);
    insert(h, at);
}

uint32_t heap_usable(heap *h, ref user) { return user == 0 ? 0 : size_of(block_at(h, user - HEADER)) - HEADER; }

ref heap_realloc(heap *h, ref user, uint32_t bytes) {
    if (user == 0) return heap_alloc(h, bytes);
    if (bytes == 0) {
        heap_free(h, user);
        return 0;
    }
    if (bytes > h->bytes) {
        h->failures++;
        return 0;
    }
    ref at = user - HEADER;
    uint32_t size = rounded(bytes), has = size_of(block_at(h, at));
    ref next = at + has;
    bool grows = size > has;
    if (grows && (block_at(h, next)->size & FREE) && has + size_of(block_at(h, next)) >= size) {
        detach(h, next);
        uint32_t all = has + size_of(block_at(h, next));
        block_at(h, at)->size = all | (block_at(h, at)->size & FREE_BELOW);
        grows = false;
    }
    if (!grows) {
        h->used -= has;
        h->blocks--;
        trim(h, at, size);
        return count(h, at);
    }
    ref moved = heap_alloc(h, bytes);
    if (moved == 0) return 0;
    memcpy(heap_at(h, moved), heap_at(h, user), has - HEADER);
    heap_free(h, user);
    return moved;
}

bool heap_walk(heap *h, heap_visitor *visit, void *context) {
    for (ref at = h->lowest; at < h->bytes - HEADER; at = above(h, at)) {
        const block *b = block_at(h, at);
        if (size_of(b) < LEAST) return false;
        if (!visit(context, at + HEADER, size_of(b) - HEADER, (b->size & FREE) != 0)) return false;
    }
    return true;
}

uint32_t heap_check(heap *h) {
    uint32_t used = 0, blocks = 0, free_blocks = 0;
    bool free_below = false;
    ref below = 0;
    for (ref at = h->lowest; at < h->bytes - HEADER; below = at, at = above(h, at)) {
        const block *b = block_at(h, at);
        bool is_free = (b->size & FREE) != 0;
        if (size_of(b) < LEAST || at + size_of(b) > h->bytes - HEADER) return 1;
        if (((b->size & FREE_BELOW) != 0) != free_below) return 2;
        if (free_below && (is_free || b->below != below)) return 3;
        if (is_free) free_blocks++;
        if (!is_free) used += size_of(b), blocks++;
        free_below = is_free;
    }
    if (used != h->used || blocks != h->blocks) return 4;
    for (uint32_t first = 0; first < HEAP_FIRST; first++) {
        if ((h->second_map[first] != 0) != (h->first_map >> first & 1)) return 5;
        for (uint32_t second = 0; second < HEAP_SECOND; second++) {
            ref previous = 0;
            if ((h->free[first][second] != 0) != (h->second_map[first] >> second & 1)) return 6;
            for (ref at = h->free[first][second]; at != 0; previous = at, at = block_at(h, at)->next) {
                uint32_t own_first, own_second;
                classify(size_of(block_at(h, at)), &own_first, &own_second);
                if (own_first != first || own_second != second) return 7;
                if (block_at(h, at)->previous != previous || free_blocks-- == 0) return 8;
            }
        }
    }
    return free_blocks == 0 ? 0 : 9;
}

uint32_t heap_largest(heap *h) {
    if (h->first_map == 0) return 0;
    uint32_t first = 31 - (uint32_t)__builtin_clz(h->first_map);
    uint32_t second = 31 - (uint32_t)__builtin_clz(h->second_map[first]), most = 0;
    for (ref at = h->free[first][second]; at != 0; at = block_at(h, at)->next)
        if (size_of(block_at(h, at)) > most) most = size_of(block_at(h, at));
    return most - HEADER;
}
