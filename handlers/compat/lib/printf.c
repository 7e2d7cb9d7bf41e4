/* printf and its like, by way of the printing device. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "spin_regs.h"

/* Where characters go: into a buffer, or to the device. */
typedef struct sink {
    char *buffer; /* NULL: the device */
    size_t room;
    size_t count;
} sink_t;

/* What a conversion asks for. */
typedef struct conversion {
    bool left, zero, alternate;
    char sign;
    int width, precision;
} conversion_t;

static void put(sink_t *sink, char character) {
    if (!sink->buffer) *(volatile uint8_t *)SPIN_STDOUT_BASE = (uint8_t)character;
    else if (sink->count < sink->room) sink->buffer[sink->count] = character;
    sink->count++;
}

static void pad(sink_t *sink, char character, int count) {
    for (; count > 0; count--) put(sink, character);
}

/* Writes text with what comes before it, in a field. */
static void field(sink_t *sink, const conversion_t *c, const char *prefix, int zeroes, const char *text, int length) {
    int prefixed = 0;
    while (prefix[prefixed]) prefixed++;
    int blank = c->width - prefixed - zeroes - length;
    if (!c->left) pad(sink, ' ', blank);
    for (; *prefix; prefix++) put(sink, *prefix);
    pad(sink, '0', zeroes);
    for (int i = 0; i < length; i++) put(sink, text[i]);
    if (c->left) pad(sink, ' ', blank);
}

/* Divides in place and returns the remainder: half-words, since there is no division of doublewords. */
static uint32_t divide(uint64_t *value, uint32_t by) {
    uint32_t high = (uint32_t)(*value >> 32), low = (uint32_t)*value;
    uint32_t upper = high / by, rest = high % by;
    uint32_t middle = rest << 16 | low >> 16;
    uint32_t last = middle % by << 16 | (low & 0xffff);
    *value = (uint64_t)upper << 32 | (uint64_t)(middle / by) << 16 | last / by;
    return last % by;
}

static void number(sink_t *sink, const conversion_t *c, uint64_t value, uint32_t base, bool upper, const char *prefix) {
    char digits[24];
    int at = sizeof digits;
    bool nothing = value == 0 && c->precision == 0;
    while (value != 0 || (at == (int)sizeof digits && !nothing)) {
        uint32_t digit = divide(&value, base);
        digits[--at] = (char)(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    }
    int length = (int)sizeof digits - at, prefixed = 0, zeroes = c->precision - length;
    while (prefix[prefixed]) prefixed++;
    if (c->precision < 0 && c->zero && !c->left) zeroes = c->width - prefixed - length;
    field(sink, c, prefix, zeroes > 0 ? zeroes : 0, digits + at, length);
}

/* A number in the format, or the argument that a star stands for. */
static int count(const char **format, va_list *arguments) {
    int value = 0;
    if (**format == '*') {
        (*format)++;
        return va_arg(*arguments, int);
    }
    for (; **format >= '0' && **format <= '9'; (*format)++) value = 10 * value + (**format - '0');
    return value;
}

static bool flag(conversion_t *c, char character) {
    switch (character) {
    case '-': c->left = true; return true;
    case '0': c->zero = true; return true;
    case '#': c->alternate = true; return true;
    case '+': c->sign = '+'; return true;
    case ' ': c->sign = c->sign ? c->sign : ' '; return true;
    default: return false;
    }
}

/* How many bytes an argument has. */
static int size(const char **format) {
    int bytes = 4;
    for (;; (*format)++) {
        switch (**format) {
        case 'h': bytes = bytes == 2 ? 1 : 2; break;
        case 'l': bytes = (*format)[1] == 'l' ? 8 : bytes; break;
        case 'j': bytes = 8; break;
        case 'z':
        case 't': break;
        default: return bytes;
        }
    }
}

static uint64_t argument(va_list *arguments, int bytes, bool is_signed) {
    if (bytes == 8) return va_arg(*arguments, uint64_t);
    uint32_t value = va_arg(*arguments, uint32_t);
    if (bytes == 1) return is_signed ? (uint64_t)(int64_t)(int8_t)value : (uint8_t)value;
    if (bytes == 2) return is_signed ? (uint64_t)(int64_t)(int16_t)value : (uint16_t)value;
    return is_signed ? (uint64_t)(int64_t)(int32_t)value : value;
}

static void signed_number(sink_t *sink, const conversion_t *c, int64_t value) {
    char prefix[2] = {value < 0 ? '-' : c->sign, 0};
    number(sink, c, value < 0 ? -(uint64_t)value : (uint64_t)value, 10, false, prefix);
}

static void text(sink_t *sink, const conversion_t *c, const char *from) {
    int length = 0;
    if (!from) from = "(null)";
    while ((c->precision < 0 || length < c->precision) && from[length]) length++;
    field(sink, c, "", 0, from, length);
}

/* One conversion; the format is after its percent sign, and then after it. */
static void convert(sink_t *sink, const char **format, va_list *arguments) {
    conversion_t c = {.precision = -1};
    while (flag(&c, **format)) (*format)++;
    c.width = count(format, arguments);
    if (c.width < 0) (c.width = -c.width, c.left = true);
    if (**format == '.') ((*format)++, c.precision = count(format, arguments));
    int bytes = size(format);
    char kind = **format;
    if (kind) (*format)++;
    uint64_t value;
    switch (kind) {
    case 'd':
    case 'i': signed_number(sink, &c, (int64_t)argument(arguments, bytes, true)); break;
    case 'u': number(sink, &c, argument(arguments, bytes, false), 10, false, ""); break;
    case 'o':
        value = argument(arguments, bytes, false);
        number(sink, &c, value, 8, false, c.alternate && value ? "0" : "");
        break;
    case 'x':
    case 'X':
        value = argument(arguments, bytes, false);
        number(sink, &c, value, 16, kind == 'X', c.alternate && value ? (kind == 'X' ? "0X" : "0x") : "");
        break;
    case 'p': number(sink, &c, va_arg(*arguments, uint32_t), 16, false, "0x"); break;
    case 'c': {
        char character = (char)va_arg(*arguments, int);
        field(sink, &c, "", 0, &character, 1);
        break;
    }
    case 's': text(sink, &c, va_arg(*arguments, const char *)); break;
    case '%': put(sink, '%'); break;
    default: /* not one of those that there are: shown as it is */
        put(sink, '%');
        if (kind) put(sink, kind);
    }
}

static void print(sink_t *sink, const char *format, va_list arguments) {
    va_list rest;
    va_copy(rest, arguments);
    while (*format) {
        if (*format != '%') put(sink, *format++);
        else (format++, convert(sink, &format, &rest));
    }
    va_end(rest);
}

int vprintf(const char *format, va_list arguments) {
    sink_t sink = {NULL, 0, 0};
    print(&sink, format, arguments);
    return (int)sink.count;
}

int vsnprintf(char *to, size_t size, const char *format, va_list arguments) {
    char nothing;
    sink_t sink = {size ? to : &nothing, size ? size - 1 : 0, 0};
    print(&sink, format, arguments);
    if (size) to[sink.count < size ? sink.count : size - 1] = 0;
    return (int)sink.count;
}

int printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = vprintf(format, arguments);
    va_end(arguments);
    return count;
}

int snprintf(char *to, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(to, size, format, arguments);
    va_end(arguments);
    return count;
}

int sprintf(char *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(to, SIZE_MAX >> 1, format, arguments);
    va_end(arguments);
    return count;
}

int putchar(int character) {
    *(volatile uint8_t *)SPIN_STDOUT_BASE = (uint8_t)character;
    return (uint8_t)character;
}

int puts(const char *text) {
    while (*text) putchar(*text++);
    return putchar('\n');
}
