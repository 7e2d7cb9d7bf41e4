/* Datatypes as MPI has them (MPI 4.0, chapter 5): where the elements of a message lie in memory. */
#ifndef LARGE_DATATYPE_H
#define LARGE_DATATYPE_H

#include "format.h"
#include "heap.h"

typedef enum element { INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, PAIR, ELEMENTS } element;

typedef enum type_kind {
    TYPE_BASIC,
    TYPE_CONTIGUOUS,
    TYPE_VECTOR,
    TYPE_HVECTOR,
    TYPE_INDEXED,
    TYPE_HINDEXED,
    TYPE_BLOCKS, /* indexed, all blocks of one length */
    TYPE_STRUCT,
    TYPE_SUBARRAY,
    TYPE_RESIZED,
    TYPE_KINDS
} type_kind;

/* A piece of memory of a committed type, relative to its start. */
typedef struct piece {
    int32_t at;
    uint32_t bytes;
} piece;

/* A datatype, in the heap. */
typedef struct datatype {
    uint8_t kind;
    uint8_t element; /* of basic types */
    uint8_t depth;
    uint8_t is_committed;
    uint32_t users;
    uint32_t size; /* bytes of data */
    int32_t low, high; /* bounds with paddings: extent is high - low */
    int32_t true_low, true_high;
    uint32_t count, block;
    int32_t stride; /* in bytes */
    ref inner;     /* type, or array of types */
    ref arguments; /* block lengths, then displacements; sizes, subsizes, starts */
    ref pieces;    /* when committed */
    uint32_t piece_count;
    int32_t step; /* between pieces when all have one length and distance, else 0 */
} datatype;

static inline datatype *type_at(heap *h, ref t) { return heap_at(h, t); }
static inline uint32_t type_extent(heap *h, ref t) { return (uint32_t)(type_at(h, t)->high - type_at(h, t)->low); }

/* Constructors return 0 if arguments are out of range, or there is no memory. They use the inner type: release yours. */
ref type_basic(heap *h, element e);
ref type_contiguous(heap *h, uint32_t count, ref inner);
ref type_vector(heap *h, uint32_t count, uint32_t block, int32_t stride, ref inner);
ref type_hvector(heap *h, uint32_t count, uint32_t block, int32_t stride, ref inner);
ref type_indexed(heap *h, uint32_t count, const uint32_t *lengths, const int32_t *displacements, ref inner);
ref type_hindexed(heap *h, uint32_t count, const uint32_t *lengths, const int32_t *displacements, ref inner);
ref type_blocks(heap *h, uint32_t count, uint32_t block, const int32_t *displacements, ref inner);
ref type_struct(heap *h, uint32_t count, const uint32_t *lengths, const int32_t *displacements, const ref *inner);
ref type_subarray(heap *h, uint32_t dimensions, const uint32_t *sizes, const uint32_t *parts, const uint32_t *starts,
                  bool fortran, ref inner);
ref type_resized(heap *h, int32_t low, uint32_t extent, ref inner);
void type_use(heap *h, ref t);
void type_release(heap *h, ref t);

/* Finds the pieces. */
bool type_commit(heap *h, ref t);
/* Text like `vector(3, 2, 16, int32)`. */
void type_describe(heap *h, ref t, text *out);
/* A hash of the elements in order: equal for types whose data match. */
uint32_t type_signature(heap *h, ref t);
/* Element in which byte `at` of the packed data lies, and how many bytes before it; false behind the end. */
bool type_locate(heap *h, ref t, uint32_t at, int32_t *address);

/* Copies `bytes` from byte `from` of the packed form of `count` elements of a committed type at `memory`, whose first byte
 * of all is `low` bytes before `memory` and last `high` behind. Returns bytes copied. */
uint32_t type_pack(heap *h, ref t, uint32_t count, const uint8_t *memory, uint32_t from, uint8_t *packed, uint32_t bytes);
uint32_t type_unpack(heap *h, ref t, uint32_t count, uint8_t *memory, uint32_t from, const uint8_t *packed, uint32_t bytes);

typedef enum reduction { SUM, PRODUCT, MINIMUM, MAXIMUM, BIT_AND, BIT_OR, BIT_XOR, MIN_LOCATION, REDUCTIONS } reduction;
/* Combines `from` with `into`, elementwise. False if the operation does not exist for the element. */
bool reduce(reduction op, element e, void *into, const void *from, uint32_t count);
uint32_t element_size(element e);
const char *element_name(element e);

#endif
