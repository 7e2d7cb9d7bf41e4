/* Natural numbers of any size, in words of 32 bits, the least first. */
#ifndef LARGE_BIGNUM_H
#define LARGE_BIGNUM_H

#include "format.h"
#include "heap.h"

/* Sum and difference of `count` words; return the carry. */
uint32_t big_add(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count);
uint32_t big_subtract(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count);
int big_compare(const uint32_t *a, const uint32_t *b, uint32_t count);
uint32_t big_shift_left(uint32_t *to, const uint32_t *a, uint32_t count, uint32_t bits);
void big_shift_right(uint32_t *to, const uint32_t *a, uint32_t count, uint32_t bits);
/* `to` has 2 * count words. Karatsuba's method for many words; `room` has 4 * count words then. */
void big_multiply(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count, uint32_t *room);
void big_square(uint32_t *to, const uint32_t *a, uint32_t count);
/* Quotient of `a` of `count` words, and remainder in `rest` of `by_count`. False if `by` is 0 or there is no memory. */
bool big_divide(heap *h, uint32_t *quotient, uint32_t *rest, const uint32_t *a, uint32_t count, const uint32_t *by, uint32_t by_count);
/* to = base ^ exponent modulo an odd number, with Montgomery's multiplication. */
bool big_power(heap *h, uint32_t *to, const uint32_t *base, const uint32_t *exponent, const uint32_t *modulus, uint32_t count);
bool big_gcd(heap *h, uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count);
void big_write(heap *h, const uint32_t *a, uint32_t count, text *out);

#endif
