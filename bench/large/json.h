/* JSON texts (RFC 8259) without fractions: a tree of values in the heap. */
#ifndef LARGE_JSON_H
#define LARGE_JSON_H

#include "format.h"
#include "heap.h"

typedef enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json {
    uint32_t kind;
    uint32_t count; /* members, or bytes of a string */
    ref first;      /* first member, or bytes of a string */
    ref next;       /* next member of the same array or object */
    ref name;       /* of an object's member: a string value */
    uint32_t unused;
    int64_t number;
} json;

/* The value of a text, or 0; `at` becomes where the reading ended. */
ref json_parse(heap *h, const char *s, uint32_t *at);
void json_free(heap *h, ref value);
/* `indent` is the number of spaces per level, or 0 for one line. */
void json_write(heap *h, ref value, text *out, uint32_t indent);
/* The value at a path like `a.b[2].c`, or 0. */
ref json_find(heap *h, ref value, const char *path);
bool json_equal(heap *h, ref a, ref b);
uint32_t json_hash(heap *h, ref value);
/* Sorts the members of all objects by name. */
void json_sort(heap *h, ref value);

#endif
