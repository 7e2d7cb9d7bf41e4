#include "format.h"

void text_put(text *t, char c) {
    if (t->length + 1 < t->room) {
        t->at[t->length] = c;
        t->at[t->length + 1] = 0;
    }
    t->length++;
}

void text_puts(text *t, const char *s) {
    while (*s != 0) text_put(t, *s++);
}

/* Sixteen bits at a time: a divisor above 16 bits goes bit by bit. */
uint32_t divide_by(uint64_t *value, uint32_t by) {
    uint64_t quotient = 0;
    uint32_t rest = 0;
    if (by <= 0xffff) {
        for (int shift = 48; shift >= 0; shift -= 16) {
            uint32_t part = rest << 16 | (uint32_t)(*value >> shift & 0xffff);
            quotient = quotient << 16 | part / by;
            rest = part % by;
        }
    } else {
        uint64_t left = 0;
        for (int bit = 63; bit >= 0; bit--) {
            left = left << 1 | (*value >> bit & 1);
            quotient <<= 1;
            if (left >= by) {
                left -= by;
                quotient |= 1;
            }
        }
        rest = (uint32_t)left;
    }
    *value = quotient;
    return rest;
}

typedef struct spec {
    bool left, plus, space, zero, alternate, has_precision;
    uint32_t width, precision;
    int size; /* -2: char, -1: short, 0: int, 1: long, 2: long long */
} spec;

static void pad(text *t, char c, uint32_t count) {
    while (count-- > 0) text_put(t, c);
}

static void put_string(text *t, const spec *s, const char *string) {
    uint32_t length = 0;
    while (string[length] != 0 && !(s->has_precision && length == s->precision)) length++;
    uint32_t fill = s->width > length ? s->width - length : 0;
    if (!s->left) pad(t, ' ', fill);
    for (uint32_t i = 0; i < length; i++) text_put(t, string[i]);
    if (s->left) pad(t, ' ', fill);
}

static void put_number(text *t, const spec *s, uint64_t value, bool negative, uint32_t base, bool upper) {
    char digits[64], sign = negative ? '-' : s->plus ? '+' : s->space ? ' ' : 0;
    const char *prefix = "";
    uint32_t count = 0;
    const char *letters = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    if (s->alternate && value != 0) prefix = base == 16 ? (upper ? "0X" : "0x") : base == 8 ? "0" : base == 2 ? "0b" : "";
    while (value != 0) {
        uint32_t digit;
        if ((base & (base - 1)) == 0) {
            digit = (uint32_t)value & (base - 1);
            value >>= __builtin_ctz(base);
        } else if (value >> 32 == 0) {
            digit = (uint32_t)value % base;
            value = (uint32_t)value / base;
        } else {
            digit = divide_by(&value, base);
        }
        digits[count++] = letters[digit];
    }
    uint32_t least = s->has_precision ? s->precision : 1, around = (sign != 0) + (prefix[0] != 0) + (prefix[0] != 0 && prefix[1] != 0);
    uint32_t shown = count > least ? count : least;
    if (s->zero && !s->left && !s->has_precision && s->width > shown + around) shown = s->width - around;
    uint32_t fill = s->width > shown + around ? s->width - shown - around : 0;
    if (!s->left) pad(t, ' ', fill);
    if (sign != 0) text_put(t, sign);
    text_puts(t, prefix);
    pad(t, '0', shown - count);
    while (count > 0) text_put(t, digits[--count]);
    if (s->left) pad(t, ' ', fill);
}

/* Flags, width, precision and size. Returns the conversion's place. */
static const char *parse_spec(spec *s, const char *f, va_list *arguments) {
    *s = (spec){0};
    for (;; f++) {
        if (*f == '-') s->left = true;
        else if (*f == '+') s->plus = true;
        else if (*f == ' ') s->space = true;
        else if (*f == '0') s->zero = true;
        else if (*f == '#') s->alternate = true;
        else break;
    }
    if (*f == '*') {
        int width = va_arg(*arguments, int);
        s->left |= width < 0;
        s->width = width < 0 ? -(uint32_t)width : (uint32_t)width;
        f++;
    }
    for (; *f >= '0' && *f <= '9'; f++) s->width = s->width * 10 + (uint32_t)(*f - '0');
    if (*f == '.') {
        s->has_precision = true;
        f++;
        if (*f == '*') {
            int precision = va_arg(*arguments, int);
            s->has_precision = precision >= 0;
            s->precision = (uint32_t)precision;
            f++;
        }
        for (; *f >= '0' && *f <= '9'; f++) s->precision = s->precision * 10 + (uint32_t)(*f - '0');
    }
    for (;; f++) {
        if (*f == 'h') s->size--;
        else if (*f == 'l') s->size++;
        else if (*f != 'z') return f;
    }
}

static int64_t signed_argument(const spec *s, va_list *arguments) {
    if (s->size >= 2) return va_arg(*arguments, long long);
    if (s->size == 1) return va_arg(*arguments, long);
    int value = va_arg(*arguments, int);
    return s->size == 0 ? value : s->size == -1 ? (int16_t)value : (int8_t)value;
}

static uint64_t unsigned_argument(const spec *s, va_list *arguments) {
    if (s->size >= 2) return va_arg(*arguments, unsigned long long);
    if (s->size == 1) return va_arg(*arguments, unsigned long);
    unsigned value = va_arg(*arguments, unsigned);
    return s->size == 0 ? value : s->size == -1 ? (uint16_t)value : (uint8_t)value;
}

void text_vformat(text *t, const char *f, va_list list) {
    va_list arguments;
    va_copy(arguments, list);
    for (; *f != 0; f++) {
        if (*f != '%') {
            text_put(t, *f);
            continue;
        }
        spec s;
        f = parse_spec(&s, f + 1, &arguments);
        switch (*f) {
            case 'd':
            case 'i': {
                int64_t value = signed_argument(&s, &arguments);
                put_number(t, &s, value < 0 ? -(uint64_t)value : (uint64_t)value, value < 0, 10, false);
                break;
            }
            case 'u': put_number(t, &s, unsigned_argument(&s, &arguments), false, 10, false); break;
            case 'x': put_number(t, &s, unsigned_argument(&s, &arguments), false, 16, false); break;
            case 'X': put_number(t, &s, unsigned_argument(&s, &arguments), false, 16, true); break;
            case 'o': put_number(t, &s, unsigned_argument(&s, &arguments), false, 8, false); break;
            case 'b': put_number(t, &s, unsigned_argument(&s, &arguments), false, 2, false); break;
            case 'p': s.alternate = true; put_number(t, &s, (uintptr_t)va_arg(arguments, void *), false, 16, false); break;
            case 'c': {
                char c[2] = {(char)va_arg(arguments, int), 0};
                put_string(t, &s, c);
                break;
            }
            case 's': put_string(t, &s, va_arg(arguments, const char *)); break;
            case 0: f--; break;
            default: text_put(t, *f);
        }
    }
    va_end(arguments);
}

void text_format(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    text_vformat(t, format, arguments);
    va_end(arguments);
}

static uint32_t digit_of(char c) {
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0');
    if (c >= 'a' && c <= 'z') return (uint32_t)(c - 'a') + 10;
    if (c >= 'A' && c <= 'Z') return (uint32_t)(c - 'A') + 10;
    return 99;
}

uint32_t parse_unsigned(const char *s, uint32_t base, uint64_t *value) {
    uint32_t length = 0, digit;
    if (base == 0) {
        base = 10;
        if (s[0] == '0' && (s[1] | 32) == 'x' && digit_of(s[2]) < 16) base = 16, length = 2;
        else if (s[0] == '0' && (s[1] | 32) == 'b' && digit_of(s[2]) < 2) base = 2, length = 2;
    }
    uint32_t before = length;
    for (*value = 0; (digit = digit_of(s[length])) < base; length++) {
        uint64_t low = (*value & 0xffffffff) * base + digit, high = (*value >> 32) * base + (low >> 32);
        if (high >> 32) return 0;
        *value = high << 32 | (low & 0xffffffff);
    }
    return length == before ? 0 : length;
}

uint32_t parse_signed(const char *s, int64_t *value) {
    uint64_t magnitude;
    bool negative = s[0] == '-';
    uint32_t skipped = negative || s[0] == '+', length = parse_unsigned(s + skipped, 0, &magnitude);
    if (length == 0 || magnitude > (uint64_t)INT64_MAX + negative) return 0;
    *value = (int64_t)(negative ? -magnitude : magnitude);
    return length + skipped;
}
