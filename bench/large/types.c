/* Operations on datatypes. */
#include "operations.h"

/* The types of the first slots are basic; made ones are in the others. */
static ref *made(world *w, uint32_t slot) { return &w->types[ELEMENTS + slot % (SLOTS - ELEMENTS)]; }

static ref make_type(world *w, heap *h, const step *s, ref inner) {
    uint32_t seed = s->seed, count = 1 + s->amount % 7, lengths[6], parts[4], starts[4];
    int32_t displacements[6], at = 0;
    ref members[6];
    for (int i = 0; i < 6; i++) {
        lengths[i] = next_random(&seed) >> 7 & 3;
        at += (int32_t)(next_random(&seed) >> 9 & 7);
        displacements[i] = at;
        at += (int32_t)lengths[i];
        members[i] = w->types[(seed >> 13) % SLOTS] != 0 ? w->types[(seed >> 13) % SLOTS] : inner;
    }
    uint32_t listed = count < 6 ? count : 6;
    switch (seed >> 20 & 15) {
        case 0: case 1: return type_contiguous(h, count, inner);
        case 2: case 3: return type_vector(h, 2 + count, 1 + (seed & 3), (int32_t)(2 + (seed >> 4 & 7)), inner);
        case 4: return type_hvector(h, 1 + count, 1 + (seed & 1), (int32_t)(type_extent(h, inner) * 3 + (seed & 8)), inner);
        case 5: case 6: return type_indexed(h, listed, lengths, displacements, inner);
        case 7:
            for (int i = 0; i < 6; i++) displacements[i] *= (int32_t)type_extent(h, inner);
            return type_hindexed(h, listed, lengths, displacements, inner);
        case 8: case 9: return type_blocks(h, listed, 2, displacements, inner);
        case 10: case 11:
            for (int i = 0; i < 6; i++) displacements[i] *= 16;
            return type_struct(h, listed, lengths, displacements, members);
        case 12: case 13: case 14:
            for (int i = 0; i < 4; i++) {
                lengths[i] = 2 + (lengths[i] & 3);
                parts[i] = 1 + ((uint32_t)displacements[i] & 1);
                starts[i] = lengths[i] - parts[i] > (seed & 1) ? seed & 1 : 0;
            }
            return type_subarray(h, 1 + (seed >> 5 & 3), lengths, parts, starts, (seed & 64) != 0, inner);
        default: return type_resized(h, -(int32_t)(seed & 7), type_extent(h, inner) + (seed >> 3 & 31), inner);
    }
}

static uint32_t make_in_slot(world *w, heap *h, const step *s) {
    ref inner = w->types[(s->slot >> 4) % SLOTS], *to = made(w, s->slot);
    if (inner == 0) inner = w->types[INT32];
    ref t = make_type(w, h, s, inner);
    if (t == 0) return NO_MEMORY;
    type_release(h, *to);
    *to = t;
    const datatype *d = type_at(h, t);
    return d->size + (uint32_t)d->low * 3 + (uint32_t)d->high * 5 + (uint32_t)d->true_low * 7 + (uint32_t)d->true_high * 11 + d->depth;
}

static uint32_t describe(world *w, heap *h, const step *s) {
    ref t = *made(w, s->slot), room = t == 0 ? 0 : heap_alloc(h, 512);
    if (room == 0) return NO_MEMORY;
    text out = text_in(heap_at(h, room), 512);
    type_describe(h, t, &out);
    uint32_t sum = murmur3(out.at, out.length < 511 ? out.length : 511, out.length);
    heap_free(h, room);
    return sum + (type_at(h, t)->size < 4096 ? type_signature(h, t) : 1);
}

static uint32_t locate(world *w, heap *h, const step *s) {
    ref t = *made(w, s->slot);
    int32_t address = 0;
    if (t == 0 || type_at(h, t)->size == 0 || type_at(h, t)->size > 4096) return NO_MEMORY;
    bool found = type_locate(h, t, s->seed % (type_at(h, t)->size + 4), &address);
    return (uint32_t)address * 2 + found;
}

/* Number of elements of a type that lie in `length` bytes, and where the first begins. */
static uint32_t fitting(heap *h, ref t, uint32_t length, uint32_t most, uint32_t *start) {
    const datatype *d = type_at(h, t);
    int32_t first = d->true_low < 0 ? -d->true_low : 0;
    uint32_t count = 0;
    while (count < most && first + (int32_t)(count * type_extent(h, t)) + d->true_high <= (int32_t)length) count++;
    *start = (uint32_t)first;
    return count;
}

/* Packs from one blob, in pieces of a packet's length; the result becomes another blob. Or unpacks it. */
static uint32_t transfer(world *w, heap *h, const step *s, bool pack) {
    ref t = s->seed & 1 ? w->types[s->slot % ELEMENTS] : *made(w, s->slot);
    blob *memory = blob_of(w, s->slot >> 4), *packed = blob_of(w, (s->slot >> 4) + 1 + (s->seed >> 4 & 7));
    uint32_t start, piece = 8 + (s->seed >> 8 & 255), done = 0;
    if (t == 0 || memory->at == 0 || packed->at == 0 || !type_commit(h, t)) return NO_MEMORY;
    uint32_t count = fitting(h, t, memory->length, 1 + s->amount % 40, &start), size = type_at(h, t)->size * count;
    if (size > packed->length) size = packed->length;
    while (done < size) {
        uint32_t part = size - done < piece ? size - done : piece;
        uint8_t *from = (uint8_t *)heap_at(h, memory->at) + start, *to = (uint8_t *)heap_at(h, packed->at) + done;
        uint32_t moved = pack ? type_pack(h, t, count, from, done, to, part) : type_unpack(h, t, count, from, done, to, part);
        if (moved == 0) break;
        done += moved;
    }
    return blob_hash(h, pack ? packed : memory) + done;
}

static uint32_t pack(world *w, heap *h, const step *s) { return transfer(w, h, s, true); }
static uint32_t unpack(world *w, heap *h, const step *s) { return transfer(w, h, s, false); }

static uint32_t combine(world *w, heap *h, const step *s) {
    blob *into = blob_of(w, s->slot), *from = blob_of(w, (s->slot & 15) + 1u + (s->slot >> 4) % 15);
    element e = (element)(s->seed % ELEMENTS);
    reduction op = e == PAIR ? MIN_LOCATION : (reduction)(s->seed >> 8 & 7);
    uint32_t least = into->length < from->length ? into->length : from->length;
    if (into->at == 0 || from->at == 0 || into == from) return NO_MEMORY;
    if (!reduce(op, e, heap_at(h, into->at), heap_at(h, from->at), least / element_size(e))) return 1;
    return blob_hash(h, into);
}

const operation_kind type_operations[6] = {
    {"type", make_in_slot}, {"describe", describe}, {"locate", locate}, {"pack", pack}, {"unpack", unpack}, {"reduce", combine},
};
