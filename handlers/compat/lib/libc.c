/* What handlers use of the C library, where there is none (clang); the four that compilers call on their own are the SDK's. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

size_t strlen(const char *text) {
    size_t length = 0;
    while (text[length]) length++;
    return length;
}

int strncmp(const char *left, const char *right, size_t length) {
    for (; length > 0; length--, left++, right++) {
        if (*left != *right) return (unsigned char)*left - (unsigned char)*right;
        if (!*left) break;
    }
    return 0;
}

int strcmp(const char *left, const char *right) { return strncmp(left, right, (size_t)-1); }

char *strncpy(char *restrict to, const char *restrict from, size_t length) {
    size_t at = 0;
    for (; at < length && from[at]; at++) to[at] = from[at];
    for (; at < length; at++) to[at] = 0;
    return to;
}

char *strcpy(char *restrict to, const char *restrict from) {
    char *at = to;
    while ((*at++ = *from++)) {}
    return to;
}

int abs(int value) { return value < 0 ? -value : value; }
