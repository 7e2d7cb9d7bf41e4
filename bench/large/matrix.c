#include "matrix.h"

#include "digest.h"

#define NAME matrix8
#define TYPE int8_t
#define WIDE uint32_t
#include "matrix.inc"

#define NAME matrixu8
#define TYPE uint8_t
#define WIDE uint32_t
#include "matrix.inc"

#define NAME matrix16
#define TYPE int16_t
#define WIDE uint32_t
#include "matrix.inc"

#define NAME matrixu16
#define TYPE uint16_t
#define WIDE uint32_t
#include "matrix.inc"

#define NAME matrix32
#define TYPE int32_t
#define WIDE uint32_t
#include "matrix.inc"

#define NAME matrix64
#define TYPE int64_t
#define WIDE uint64_t
#include "matrix.inc"

matrix_run *const matrix_runs[MATRIX_TYPES] = {matrix8_run, matrixu8_run, matrix16_run, matrixu16_run, matrix32_run, matrix64_run};
