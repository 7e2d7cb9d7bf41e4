/* The four functions that compilers call on their own (C standard, freestanding) and that handlers most often need.
 * Compile with -fno-builtin: otherwise the compiler recognises the loops below as calls of the functions themselves. */
#include <stddef.h>
#include <stdint.h>

/* A word at any alignment that may alias any object. */
typedef struct {
    uint32_t value;
} __attribute__((packed, may_alias)) word_t;

void *memcpy(void *restrict to, const void *restrict from, size_t length) {
    uint8_t *out = to;
    const uint8_t *in = from;
    for (; length >= 4; length -= 4, out += 4, in += 4) ((word_t *)out)->value = ((const word_t *)in)->value;
    for (; length > 0; length--) *out++ = *in++;
    return to;
}

void *memmove(void *to, const void *from, size_t length) {
    uint8_t *out = to;
    const uint8_t *in = from;
    /* Copies forward unless the destination starts inside the source; the difference wraps if it lies below. */
    if ((uintptr_t)out - (uintptr_t)in >= length) {
        for (; length > 0; length--) *out++ = *in++;
    } else {
        while (length-- > 0) out[length] = in[length];
    }
    return to;
}

void *memset(void *to, int byte, size_t length) {
    uint8_t *out = to;
    uint32_t word = (uint8_t)byte * 0x01010101u;
    for (; length >= 4; length -= 4, out += 4) ((word_t *)out)->value = word;
    for (; length > 0; length--) *out++ = (uint8_t)byte;
    return to;
}

int memcmp(const void *left, const void *right, size_t length) {
    const uint8_t *a = left, *b = right;
    for (; length > 0; length--, a++, b++)
        if (*a != *b) return *a - *b;
    return 0;
}
