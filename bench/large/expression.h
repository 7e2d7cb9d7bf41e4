/* Expressions of integers with variables and functions: compiled to the code of a stack machine, which is optimised and run. */
#ifndef LARGE_EXPRESSION_H
#define LARGE_EXPRESSION_H

#include "format.h"
#include "heap.h"

enum { VARIABLES = 26, STACK = 24 };

/* Code in the heap: bytes, after their number. */
ref expression_compile(heap *h, const char *s);
/* Folds constants; returns the number of instructions removed. */
uint32_t expression_optimise(heap *h, ref code);
/* The value; false for a division by 0 or too many steps. Assignments change `variables`. */
bool expression_run(heap *h, ref code, int32_t variables[VARIABLES], int32_t *value);
void expression_list(heap *h, ref code, text *out);

#endif
