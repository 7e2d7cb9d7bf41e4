/* Matrices and filters of several types of elements. */
#ifndef LARGE_MATRIX_H
#define LARGE_MATRIX_H

#include "heap.h"

enum { MATRIX_TYPES = 6 };

/* Does `way` with arrays of `bytes` bytes; returns a hash of the result. */
typedef uint32_t matrix_run(void *a, void *b, void *to, uint32_t bytes, uint32_t way);
extern matrix_run *const matrix_runs[MATRIX_TYPES];

#endif
