#include "datatype.h"

#include "digest.h"

static const struct {
    const char *name;
    uint32_t size;
} basics[ELEMENTS] = {
    {"int8", 1}, {"uint8", 1}, {"int16", 2}, {"uint16", 2}, {"int32", 4}, {"uint32", 4}, {"int64", 8}, {"uint64", 8}, {"pair", 8},
};

uint32_t element_size(element e) { return basics[e].size; }
const char *element_name(element e) { return basics[e].name; }

/* Deepest nesting: the walks below recurse. */
enum { DEEPEST = 6, LARGEST = 1 << 16, MOST_PIECES = 2048 };

static uint32_t *words_of(heap *h, const datatype *t) { return heap_at(h, t->arguments); }
static ref *members(heap *h, const datatype *t) { return heap_at(h, t->inner); }

static ref make(heap *h, type_kind kind, uint32_t depth) {
    ref at = depth > DEEPEST ? 0 : heap_zalloc(h, 1, sizeof(datatype));
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    t->kind = (uint8_t)kind;
    t->depth = (uint8_t)depth;
    t->users = 1;
    return at;
}

ref type_basic(heap *h, element e) {
    ref at = make(h, TYPE_BASIC, 1);
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    t->element = (uint8_t)e;
    t->size = element_size(e);
    t->high = t->true_high = (int32_t)t->size;
    return at;
}

void type_use(heap *h, ref t) { type_at(h, t)->users++; }

void type_release(heap *h, ref at) {
    if (at == 0) return;
    datatype *t = type_at(h, at);
    if (--t->users != 0) return;
    if (t->kind == TYPE_STRUCT) {
        for (uint32_t i = 0; i < t->count; i++) type_release(h, members(h, t)[i]);
        heap_free(h, t->inner);
    } else {
        type_release(h, t->inner);
    }
    heap_free(h, t->arguments);
    heap_free(h, t->pieces);
    heap_free(h, at);
}

/* Widens the bounds of `t` by a block of `count` inner elements at `at`. False if they get too large. */
static bool extend(heap *h, datatype *t, ref inner, int32_t at, uint32_t count, bool *is_empty) {
    const datatype *i = type_at(h, inner);
    if (count == 0) return true;
    int64_t extent = (int64_t)i->high - i->low, last = (int64_t)at + extent * (count - 1);
    if (at < -LARGEST || last > LARGEST || extent < 0 || (uint64_t)count * i->size > LARGEST) return false;
    int32_t low = at + i->low, high = (int32_t)last + i->high, true_low = at + i->true_low, true_high = (int32_t)last + i->true_high;
    if (*is_empty || low < t->low) t->low = low;
    if (*is_empty || high > t->high) t->high = high;
    if (*is_empty || true_low < t->true_low) t->true_low = true_low;
    if (*is_empty || true_high > t->true_high) t->true_high = true_high;
    t->size += count * i->size;
    *is_empty = false;
    return t->size <= LARGEST && t->low >= -LARGEST && t->high <= LARGEST;
}

static ref refuse(heap *h, ref at) {
    datatype *t = type_at(h, at);
    t->inner = 0;
    t->count = 0;
    type_release(h, at);
    return 0;
}

static ref of_one(heap *h, type_kind kind, ref inner) {
    ref at = inner == 0 ? 0 : make(h, kind, type_at(h, inner)->depth + 1u);
    if (at != 0) type_at(h, at)->inner = inner;
    return at;
}

ref type_hvector(heap *h, uint32_t count, uint32_t block, int32_t stride, ref inner) {
    ref at = of_one(h, TYPE_HVECTOR, inner);
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    t->count = count;
    t->block = block;
    t->stride = stride;
    bool is_empty = true, fits = count <= LARGEST;
    for (uint32_t i = 0; fits && i < count; i++) {
        int64_t place = (int64_t)stride * i;
        fits = place >= -LARGEST && place <= LARGEST && extend(h, t, inner, (int32_t)place, block, &is_empty);
    }
    if (!fits) return refuse(h, at);
    type_use(h, inner);
    return at;
}

ref type_vector(heap *h, uint32_t count, uint32_t block, int32_t stride, ref inner) {
    if (inner == 0 || stride > LARGEST || stride < -LARGEST) return 0;
    int64_t bytes = (int64_t)stride * type_extent(h, inner);
    if (bytes > LARGEST || bytes < -LARGEST) return 0;
    ref at = type_hvector(h, count, block, (int32_t)bytes, inner);
    if (at != 0) type_at(h, at)->kind = TYPE_VECTOR;
    return at;
}

ref type_contiguous(heap *h, uint32_t count, ref inner) {
    if (inner == 0) return 0;
    ref at = type_hvector(h, count, 1, (int32_t)type_extent(h, inner), inner);
    if (at != 0) type_at(h, at)->kind = TYPE_CONTIGUOUS;
    return at;
}

/* Keeps arrays of words one after the other as the arguments. */
static bool keep(heap *h, datatype *t, uint32_t count, const void *first, const void *second, const void *third) {
    const void *const arrays[3] = {first, second, third};
    uint32_t used = (first != NULL) + (second != NULL) + (third != NULL), at = 0;
    t->arguments = heap_zalloc(h, used * count + 1, sizeof(uint32_t));
    if (t->arguments == 0) return false;
    for (int i = 0; i < 3; i++) {
        if (arrays[i] == NULL) continue;
        memcpy(words_of(h, t) + at, arrays[i], count * sizeof(uint32_t));
        at += count;
    }
    return true;
}

/* Blocks with displacements in units of `unit` bytes. */
static ref blocks(heap *h, type_kind kind, uint32_t count, uint32_t block, const uint32_t *lengths, const int32_t *displacements,
                  int32_t unit, ref inner) {
    ref at = of_one(h, kind, inner);
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    bool is_empty = true, fits = count <= LARGEST && keep(h, t, count, lengths, displacements, NULL);
    t->count = count;
    t->block = block;
    t->stride = unit;
    for (uint32_t i = 0; fits && i < count; i++) {
        int64_t place = (int64_t)displacements[i] * unit;
        fits = place >= -LARGEST && place <= LARGEST && extend(h, t, inner, (int32_t)place, lengths != NULL ? lengths[i] : block,
                                                                  &is_empty);
    }
    if (!fits) return refuse(h, at);
    type_use(h, inner);
    return at;
}

ref type_indexed(heap *h, uint32_t count, const uint32_t *lengths, const int32_t *displacements, ref inner) {
    return inner == 0 ? 0 : blocks(h, TYPE_INDEXED, count, 0, lengths, displacements, (int32_t)type_extent(h, inner), inner);
}

ref type_hindexed(heap *h, uint32_t count, const uint32_t *lengths, const int32_t *displacements, ref inner) {
    return blocks(h, TYPE_HINDEXED, count, 0, lengths, displacements, 1, inner);
}

ref type_blocks(heap *h, uint32_t count, uint32_t block, const int32_t *displacements, ref inner) {
    return inner == 0 ? 0 : blocks(h, TYPE_BLOCKS, count, block, NULL, displacements, (int32_t)type_extent(h, inner), inner);
}

ref type_struct(heap *h, uint32_t count, const uint32_t *lengths, const int32_t *displacements, const ref *inner) {
    uint32_t depth = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (inner[i] == 0) return 0;
        if (type_at(h, inner[i])->depth > depth) depth = type_at(h, inner[i])->depth;
    }
    ref at = make(h, TYPE_STRUCT, depth + 1);
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    ref kept = heap_zalloc(h, count + 1, sizeof(ref));
    bool is_empty = true, fits = kept != 0 && keep(h, t, count, lengths, displacements, NULL);
    for (uint32_t i = 0; fits && i < count; i++) {
        ((ref *)heap_at(h, kept))[i] = inner[i];
        fits = extend(h, t, inner[i], displacements[i], lengths[i], &is_empty);
    }
    if (!fits) {
        heap_free(h, kept);
        return refuse(h, at);
    }
    t->inner = kept;
    t->count = count;
    for (uint32_t i = 0; i < count; i++) type_use(h, inner[i]);
    return at;
}

ref type_subarray(heap *h, uint32_t dimensions, const uint32_t *sizes, const uint32_t *parts, const uint32_t *starts,
                  bool fortran, ref inner) {
    ref at = dimensions == 0 || dimensions > 4 ? 0 : of_one(h, TYPE_SUBARRAY, inner);
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    uint32_t all = 1, part = 1;
    bool fits = keep(h, t, dimensions, sizes, parts, starts);
    for (uint32_t i = 0; fits && i < dimensions; i++) {
        fits = sizes[i] <= 4096 && parts[i] > 0 && starts[i] + parts[i] <= sizes[i];
        all *= fits ? sizes[i] : 0;
        part *= fits ? parts[i] : 0;
        fits = fits && all <= LARGEST;
    }
    bool is_empty = true;
    t->count = dimensions;
    t->block = fortran;
    fits = fits && extend(h, t, inner, 0, all, &is_empty);
    if (!fits) return refuse(h, at);
    t->size = part * type_at(h, inner)->size;
    type_use(h, inner);
    return at;
}

ref type_resized(heap *h, int32_t low, uint32_t extent, ref inner) {
    ref at = of_one(h, TYPE_RESIZED, inner);
    if (at == 0) return 0;
    datatype *t = type_at(h, at);
    const datatype *i = type_at(h, inner);
    if (low < -LARGEST || low > LARGEST || extent > LARGEST) return refuse(h, at);
    t->size = i->size;
    t->low = low;
    t->high = low + (int32_t)extent;
    t->true_low = i->true_low;
    t->true_high = i->true_high;
    t->count = 1;
    type_use(h, inner);
    return at;
}

/* Called with each basic element's type and place; returns false to stop. */
typedef bool visitor(void *context, const datatype *basic, int32_t at);

static bool walk(heap *h, ref type, int32_t at, visitor *visit, void *context);

static bool walk_block(heap *h, ref inner, int32_t at, uint32_t count, visitor *visit, void *context) {
    int32_t extent = (int32_t)type_extent(h, inner);
    for (uint32_t i = 0; i < count; i++, at += extent)
        if (!walk(h, inner, at, visit, context)) return false;
    return true;
}

static bool walk_vector(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    for (uint32_t i = 0; i < t->count; i++, at += t->stride)
        if (!walk_block(h, t->inner, at, t->block, visit, context)) return false;
    return true;
}

static bool walk_indexed(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    const uint32_t *lengths = words_of(h, t);
    for (uint32_t i = 0; i < t->count; i++)
        if (!walk_block(h, t->inner, at + (int32_t)lengths[t->count + i] * t->stride, lengths[i], visit, context)) return false;
    return true;
}

static bool walk_blocks(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    for (uint32_t i = 0; i < t->count; i++)
        if (!walk_block(h, t->inner, at + (int32_t)words_of(h, t)[i] * t->stride, t->block, visit, context)) return false;
    return true;
}

static bool walk_struct(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    const uint32_t *lengths = words_of(h, t);
    for (uint32_t i = 0; i < t->count; i++)
        if (!walk_block(h, members(h, t)[i], at + (int32_t)lengths[t->count + i], lengths[i], visit, context)) return false;
    return true;
}

static bool walk_dimension(heap *h, const datatype *t, uint32_t level, int32_t index, int32_t at, visitor *visit, void *context) {
    /* The last dimension is contiguous in C's order, the first in Fortran's. */
    uint32_t dimension = t->block ? t->count - 1 - level : level;
    const uint32_t *sizes = words_of(h, t), *parts = sizes + t->count, *starts = parts + t->count;
    int32_t first = index * (int32_t)sizes[dimension] + (int32_t)starts[dimension];
    if (level + 1 == t->count) {
        return walk_block(h, t->inner, at + first * (int32_t)type_extent(h, t->inner), parts[dimension], visit, context);
    }
    for (uint32_t i = 0; i < parts[dimension]; i++)
        if (!walk_dimension(h, t, level + 1, first + (int32_t)i, at, visit, context)) return false;
    return true;
}

static bool walk_subarray(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    return walk_dimension(h, t, 0, 0, at, visit, context);
}

static bool walk_resized(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    return walk(h, t->inner, at, visit, context);
}

static bool walk_basic(heap *h, const datatype *t, int32_t at, visitor *visit, void *context) {
    (void)h;
    return visit(context, t, at);
}

typedef void describer(heap *h, const datatype *t, text *out);

static void describe_basic(heap *h, const datatype *t, text *out) {
    (void)h;
    text_puts(out, element_name((element)t->element));
}

static void describe_counts(heap *h, const datatype *t, text *out) {
    (void)h;
    text_format(out, "%u", t->count);
}

static void describe_vector(heap *h, const datatype *t, text *out) {
    (void)h;
    text_format(out, "%u, %u, %+d", t->count, t->block, t->stride);
}

static void describe_list(heap *h, const datatype *t, text *out) {
    uint32_t words = t->kind == TYPE_SUBARRAY ? 3 * t->count : t->kind == TYPE_BLOCKS ? t->count : 2 * t->count;
    text_put(out, '[');
    for (uint32_t i = 0; i < words; i++) text_format(out, i == 0 ? "%d" : " %d", (int32_t)words_of(h, t)[i]);
    text_put(out, ']');
    if (t->kind == TYPE_SUBARRAY) text_puts(out, t->block ? " fortran" : " c");
    if (t->kind == TYPE_BLOCKS) text_format(out, " of %#x", t->block);
}

static void describe_resized(heap *h, const datatype *t, text *out) {
    (void)h;
    text_format(out, "%d..%-4d", t->low, t->high);
}

static const struct {
    const char *name;
    bool (*walk)(heap *h, const datatype *t, int32_t at, visitor *visit, void *context);
    describer *describe;
} kinds[TYPE_KINDS] = {
    {"basic", walk_basic, describe_basic},        {"contiguous", walk_vector, describe_counts}, {"vector", walk_vector, describe_vector},
    {"hvector", walk_vector, describe_vector},    {"indexed", walk_indexed, describe_list},     {"hindexed", walk_indexed, describe_list},
    {"blocks", walk_blocks, describe_list},       {"struct", walk_struct, describe_list},       {"subarray", walk_subarray, describe_list},
    {"resized", walk_resized, describe_resized},
};

static bool walk(heap *h, ref type, int32_t at, visitor *visit, void *context) {
    const datatype *t = type_at(h, type);
    return kinds[t->kind].walk(h, t, at, visit, context);
}

void type_describe(heap *h, ref type, text *out) {
    const datatype *t = type_at(h, type);
    if (t->kind == TYPE_BASIC) {
        describe_basic(h, t, out);
        return;
    }
    text_format(out, "%s(", kinds[t->kind].name);
    kinds[t->kind].describe(h, t, out);
    uint32_t inner = t->kind == TYPE_STRUCT ? t->count : 1;
    for (uint32_t i = 0; i < inner; i++) {
        text_puts(out, ", ");
        type_describe(h, t->kind == TYPE_STRUCT ? members(h, t)[i] : t->inner, out);
    }
    text_put(out, ')');
}

static bool add_signature(void *context, const datatype *basic, int32_t at) {
    uint32_t *sum = context;
    (void)at;
    *sum = mix32(*sum + basic->element * 0x9e37u + 1);
    return true;
}

uint32_t type_signature(heap *h, ref t) {
    uint32_t sum = 0;
    walk(h, t, 0, add_signature, &sum);
    return sum;
}

typedef struct flattening {
    heap *h;
    ref pieces;
    uint32_t count, room;
} flattening;

static bool add_piece(void *context, const datatype *basic, int32_t at) {
    flattening *f = context;
    piece *pieces = heap_at(f->h, f->pieces);
    if (f->count > 0 && pieces[f->count - 1].at + (int32_t)pieces[f->count - 1].bytes == at) {
        pieces[f->count - 1].bytes += basic->size;
        return true;
    }
    if (f->count == f->room) {
        if (f->room >= MOST_PIECES) return false;
        ref grown = heap_realloc(f->h, f->pieces, f->room * 2 * (uint32_t)sizeof(piece));
        if (grown == 0) return false;
        f->pieces = grown;
        f->room *= 2;
        pieces = heap_at(f->h, grown);
    }
    pieces[f->count++] = (piece){at, basic->size};
    return true;
}

bool type_commit(heap *h, ref at) {
    datatype *t = type_at(h, at);
    if (t->is_committed) return true;
    flattening f = {h, heap_alloc(h, 4 * sizeof(piece)), 0, 4};
    if (f.pieces == 0) return false;
    if (!walk(h, at, 0, add_piece, &f)) {
        heap_free(h, f.pieces);
        return false;
    }
    t->pieces = heap_realloc(h, f.pieces, (f.count == 0 ? 1 : f.count) * (uint32_t)sizeof(piece));
    const piece *p = heap_at(h, t->pieces);
    t->piece_count = f.count;
    t->is_committed = true;
    t->step = f.count > 1 ? p[1].at - p[0].at : 0;
    for (uint32_t i = 1; i < f.count; i++)
        if (p[i].bytes != p[0].bytes || p[i].at - p[i - 1].at != t->step) t->step = 0;
    return true;
}

typedef struct search {
    uint32_t left;
    int32_t found;
} search;

static bool find_byte(void *context, const datatype *basic, int32_t at) {
    search *s = context;
    if (s->left < basic->size) {
        s->found = at + (int32_t)s->left;
        return false;
    }
    s->left -= basic->size;
    return true;
}

bool type_locate(heap *h, ref t, uint32_t at, int32_t *address) {
    search s = {at, 0};
    if (walk(h, t, 0, find_byte, &s)) return false;
    *address = s.found;
    return true;
}
