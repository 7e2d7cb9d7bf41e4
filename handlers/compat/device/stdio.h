/* What of <stdio.h> works on an HPU: lines go to spind's log, tagged with the HPU.
 *
 * Formats: flags, width, precision, hh h l ll z t j, and d i u o x X p c s %. No floating point. */
#ifndef SPIN_STDIO_H
#define SPIN_STDIO_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EOF (-1)
#define SPIN_FORMAT(text, first) __attribute__((format(printf, text, first)))

int printf(const char *format, ...) SPIN_FORMAT(1, 2);
int vprintf(const char *format, va_list arguments) SPIN_FORMAT(1, 0);
int sprintf(char *to, const char *format, ...) SPIN_FORMAT(2, 3);
int snprintf(char *to, size_t size, const char *format, ...) SPIN_FORMAT(3, 4);
int vsnprintf(char *to, size_t size, const char *format, va_list arguments) SPIN_FORMAT(3, 0);
int puts(const char *text);
int putchar(int character);

#ifdef __cplusplus
}
#endif

#endif
