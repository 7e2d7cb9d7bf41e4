/* Division of doublewords, which clang calls by these names and libgcc has (GCC manual, "Integer library routines"). */
#include <stdint.h>

uint64_t __udivdi3(uint64_t dividend, uint64_t divisor);
uint64_t __umoddi3(uint64_t dividend, uint64_t divisor);
int64_t __divdi3(int64_t dividend, int64_t divisor);
int64_t __moddi3(int64_t dividend, int64_t divisor);

/* Bit by bit. */
static uint64_t divide(uint64_t dividend, uint64_t divisor, uint64_t *rest) {
    uint64_t quotient = 0, left = 0;
    for (int bit = 63; bit >= 0; bit--) {
        uint64_t top = left >> 63;
        left = left << 1 | (dividend >> bit & 1);
        if (top || left >= divisor) {
            left -= divisor;
            quotient |= (uint64_t)1 << bit;
        }
    }
    *rest = left;
    return quotient;
}

static uint64_t magnitude(int64_t value) { return value < 0 ? -(uint64_t)value : (uint64_t)value; }

uint64_t __udivdi3(uint64_t dividend, uint64_t divisor) {
    uint64_t rest;
    return divide(dividend, divisor, &rest);
}

uint64_t __umoddi3(uint64_t dividend, uint64_t divisor) {
    uint64_t rest;
    divide(dividend, divisor, &rest);
    return rest;
}

int64_t __divdi3(int64_t dividend, int64_t divisor) {
    uint64_t rest, quotient = divide(magnitude(dividend), magnitude(divisor), &rest);
    return (int64_t)((dividend < 0) != (divisor < 0) ? -quotient : quotient);
}

int64_t __moddi3(int64_t dividend, int64_t divisor) {
    uint64_t rest;
    divide(magnitude(dividend), magnitude(divisor), &rest);
    return (int64_t)(dividend < 0 ? -rest : rest);
}
