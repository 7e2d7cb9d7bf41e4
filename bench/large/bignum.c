#include "bignum.h"

enum { KARATSUBA = 16 };

uint32_t big_add(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count) {
    uint32_t carry = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t sum = (uint64_t)a[i] + b[i] + carry;
        to[i] = (uint32_t)sum;
        carry = (uint32_t)(sum >> 32);
    }
    return carry;
}

uint32_t big_subtract(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count) {
    uint32_t borrow = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t difference = (uint64_t)a[i] - b[i] - borrow;
        to[i] = (uint32_t)difference;
        borrow = (uint32_t)(difference >> 32) & 1;
    }
    return borrow;
}

/* Adds a carry to a number; returns what is left of it. */
static uint32_t carry_into(uint32_t *a, uint32_t count, uint32_t carry) {
    for (uint32_t i = 0; i < count && carry != 0; i++) {
        a[i] += carry;
        carry = a[i] < carry;
    }
    return carry;
}

int big_compare(const uint32_t *a, const uint32_t *b, uint32_t count) {
    while (count-- > 0)
        if (a[count] != b[count]) return a[count] < b[count] ? -1 : 1;
    return 0;
}

static bool is_zero(const uint32_t *a, uint32_t count) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < count; i++) bits |= a[i];
    return bits == 0;
}

/* Fewer than 32 bits; returns those that leave. */
uint32_t big_shift_left(uint32_t *to, const uint32_t *a, uint32_t count, uint32_t bits) {
    uint32_t out = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word = a[i];
        to[i] = word << bits | out;
        out = bits == 0 ? 0 : word >> (32 - bits);
    }
    return out;
}

void big_shift_right(uint32_t *to, const uint32_t *a, uint32_t count, uint32_t bits) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t above = i + 1 < count && bits != 0 ? a[i + 1] << (32 - bits) : 0;
        to[i] = a[i] >> bits | above;
    }
}

/* to += a * by; returns the carry. */
static uint32_t multiply_add(uint32_t *to, const uint32_t *a, uint32_t count, uint32_t by) {
    uint32_t carry = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t product = (uint64_t)a[i] * by + to[i] + carry;
        to[i] = (uint32_t)product;
        carry = (uint32_t)(product >> 32);
    }
    return carry;
}

/* to -= a * by; returns the borrow. */
static uint32_t multiply_subtract(uint32_t *to, const uint32_t *a, uint32_t count, uint32_t by) {
    uint32_t borrow = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t product = (uint64_t)a[i] * by + borrow;
        borrow = (uint32_t)(product >> 32) + (to[i] < (uint32_t)product);
        to[i] -= (uint32_t)product;
    }
    return borrow;
}

static void schoolbook(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count) {
    memset(to, 0, 2 * count * sizeof *to);
    for (uint32_t i = 0; i < count; i++) to[i + count] = multiply_add(to + i, a, count, b[i]);
}

/* |a - b|; returns whether a < b. */
static bool distance(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count) {
    bool negative = big_compare(a, b, count) < 0;
    if (negative) big_subtract(to, b, a, count);
    else big_subtract(to, a, b, count);
    return negative;
}

void big_multiply(uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count, uint32_t *room) {
    if (count < KARATSUBA || (count & 1) != 0) {
        schoolbook(to, a, b, count);
        return;
    }
    uint32_t half = count / 2;
    uint32_t *middle = room, *below = room + count;
    /* (a1 - a0) * (b0 - b1) + a1 b1 + a0 b0 are the middle words. */
    bool negative = distance(to, a + half, a, half) != distance(to + half, b, b + half, half);
    big_multiply(middle, to, to + half, half, below);
    big_multiply(to, a, b, half, below);
    big_multiply(to + count, a + half, b + half, half, below);
    uint32_t carry = big_add(below, to, to + count, count);
    if (negative) carry -= big_subtract(below, below, middle, count);
    else carry += big_add(below, below, middle, count);
    carry += big_add(to + half, to + half, below, count);
    carry_into(to + half + count, half, carry);
}

void big_square(uint32_t *to, const uint32_t *a, uint32_t count) {
    memset(to, 0, 2 * count * sizeof *to);
    for (uint32_t i = 0; i + 1 < count; i++) to[count + i] = multiply_add(to + 2 * i + 1, a + i + 1, count - i - 1, a[i]);
    big_shift_left(to, to, 2 * count, 1);
    uint32_t carry = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t square = (uint64_t)a[i] * a[i], low = (uint64_t)to[2 * i] + (uint32_t)square + carry;
        uint64_t high = (uint64_t)to[2 * i + 1] + (uint32_t)(square >> 32) + (uint32_t)(low >> 32);
        to[2 * i] = (uint32_t)low;
        to[2 * i + 1] = (uint32_t)high;
        carry = (uint32_t)(high >> 32);
    }
}

/* Knuth, The Art of Computer Programming, volume 2, 4.3.1, algorithm D. */
bool big_divide(heap *h, uint32_t *quotient, uint32_t *rest, const uint32_t *a, uint32_t count, const uint32_t *by,
                uint32_t by_count) {
    memset(quotient, 0, count * sizeof *quotient);
    memset(rest, 0, by_count * sizeof *rest);
    uint32_t n = by_count;
    while (n > 0 && by[n - 1] == 0) n--;
    if (n == 0) return false;
    if (n == 1 || count < n) {
        uint64_t left = 0;
        if (count < n) memcpy(rest, a, count * sizeof *rest);
        for (uint32_t i = count; n == 1 && i > 0; i--) {
            uint64_t part = left << 32 | a[i - 1];
            left = divide_by(&part, by[0]);
            quotient[i - 1] = (uint32_t)part;
        }
        if (n == 1) rest[0] = (uint32_t)left;
        return true;
    }
    ref work = heap_zalloc(h, count + 1 + n, sizeof(uint32_t));
    if (work == 0) return false;
    uint32_t *u = heap_at(h, work), *v = u + count + 1, shift = (uint32_t)__builtin_clz(by[n - 1]);
    big_shift_left(v, by, n, shift);
    u[count] = big_shift_left(u, a, count, shift);
    for (uint32_t j = count - n + 1; j-- > 0;) {
        uint64_t top = (uint64_t)u[j + n] << 32 | u[j + n - 1], guess = top;
        uint64_t left = divide_by(&guess, v[n - 1]);
        while (guess >> 32 || (guess & 0xffffffff) * v[n - 2] > (left << 32 | u[j + n - 2])) {
            guess--;
            left += v[n - 1];
            if (left >> 32) break;
        }
        uint32_t borrow = multiply_subtract(u + j, v, n, (uint32_t)guess);
        bool negative = u[j + n] < borrow;
        u[j + n] -= borrow;
        if (negative) {
            guess--;
            u[j + n] += big_add(u + j, u + j, v, n);
        }
        quotient[j] = (uint32_t)guess;
    }
    big_shift_right(rest, u, n, shift);
    heap_free(h, work);
    return true;
}

/* to = a * b / 2^(32 count) modulo `modulus`; `t` has 2 * count + 1 words. */
static void montgomery(uint32_t *to, const uint32_t *a, const uint32_t *b, const uint32_t *modulus, uint32_t inverse, uint32_t count,
                       uint32_t *t) {
    if (a == b) big_square(t, a, count);
    else schoolbook(t, a, b, count);
    t[2 * count] = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t carry = multiply_add(t + i, modulus, count, t[i] * inverse);
        carry_into(t + i + count, count - i + 1, carry);
    }
    if (t[2 * count] != 0 || big_compare(t + count, modulus, count) >= 0) big_subtract(to, t + count, modulus, count);
    else memcpy(to, t + count, count * sizeof *to);
}

bool big_power(heap *h, uint32_t *to, const uint32_t *base, const uint32_t *exponent, const uint32_t *modulus, uint32_t count) {
    if ((modulus[0] & 1) == 0) return false;
    ref work = heap_zalloc(h, 10 * count + 2, sizeof(uint32_t));
    if (work == 0) return false;
    uint32_t *t = heap_at(h, work), *power = t + 2 * count + 1, *factor = power + count;
    uint32_t *large = factor + count, *quotient = large + 2 * count + 1;
    uint32_t inverse = 1;
    for (int i = 0; i < 5; i++) inverse *= 2 - modulus[0] * inverse;
    inverse = -inverse;
    bool fits = true;
    /* Montgomery's forms of the base and of 1. */
    memcpy(large + count, base, count * sizeof *base);
    fits = fits && big_divide(h, quotient, factor, large, 2 * count, modulus, count);
    memset(large, 0, 2 * count * sizeof *large);
    large[count] = 1;
    fits = fits && big_divide(h, quotient, power, large, 2 * count, modulus, count);
    for (uint32_t bit = 32 * count; fits && bit-- > 0;) {
        montgomery(power, power, power, modulus, inverse, count, t);
        if (exponent[bit / 32] >> (bit % 32) & 1) montgomery(power, power, factor, modulus, inverse, count, t);
    }
    memset(large, 0, count * sizeof *large);
    large[0] = 1;
    if (fits) montgomery(to, power, large, modulus, inverse, count, t);
    heap_free(h, work);
    return fits;
}

bool big_gcd(heap *h, uint32_t *to, const uint32_t *a, const uint32_t *b, uint32_t count) {
    ref work = heap_zalloc(h, 4 * count, sizeof(uint32_t));
    if (work == 0) return false;
    uint32_t *x = heap_at(h, work), *y = x + count, *quotient = y + count, *rest = quotient + count;
    memcpy(x, a, count * sizeof *x);
    memcpy(y, b, count * sizeof *y);
    while (!is_zero(y, count)) {
        if (!big_divide(h, quotient, rest, x, count, y, count)) break;
        memcpy(x, y, count * sizeof *x);
        memcpy(y, rest, count * sizeof *y);
    }
    memcpy(to, x, count * sizeof *to);
    heap_free(h, work);
    return true;
}

void big_write(heap *h, const uint32_t *a, uint32_t count, text *out) {
    uint32_t groups = 0, most = count * 5 / 2 + 1;
    ref work = heap_zalloc(h, count + most, sizeof(uint32_t));
    if (work == 0) return;
    uint32_t *left = heap_at(h, work), *digits = left + count;
    memcpy(left, a, count * sizeof *a);
    do {
        uint32_t rest = 0;
        for (uint32_t i = count; i > 0; i--) {
            uint64_t part = (uint64_t)rest << 32 | left[i - 1];
            rest = divide_by(&part, 10000);
            left[i - 1] = (uint32_t)part;
        }
        digits[groups++] = rest;
    } while (!is_zero(left, count));
    text_format(out, "%u", digits[groups - 1]);
    for (uint32_t i = groups - 1; i > 0; i--) text_format(out, "%04u", digits[i - 1]);
    heap_free(h, work);
}
