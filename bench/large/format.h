/* Formatted text: a subset of C's snprintf without floating point. */
#ifndef LARGE_FORMAT_H
#define LARGE_FORMAT_H

#include <stdarg.h>

#include "heap.h"

/* Text of limited length, always terminated. `length` counts what did not fit, too. */
typedef struct text {
    char *at;
    uint32_t room; /* bytes at `at` */
    uint32_t length;
} text;

static inline text text_in(char *at, uint32_t room) {
    if (room != 0) at[0] = 0;
    return (text){at, room, 0};
}

void text_put(text *t, char c);
void text_puts(text *t, const char *s);
/* Conversions d i u x X o b c s p %, flags - + space 0 #, width and precision (also *), sizes hh h l ll z. */
void text_format(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vformat(text *t, const char *format, va_list arguments);

/* Numbers as text. They return the number of characters read, or 0. */
uint32_t parse_unsigned(const char *s, uint32_t base, uint64_t *value);
uint32_t parse_signed(const char *s, int64_t *value);
/* `value` divided by a number of at most 32 bits; `*value` becomes the quotient. */
uint32_t divide_by(uint64_t *value, uint32_t by);

#endif
