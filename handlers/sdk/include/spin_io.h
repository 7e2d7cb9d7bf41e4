/* Printing, and the cycle counter. Use printing for finding faults only: each character is a device access. */
#ifndef SPIN_IO_H
#define SPIN_IO_H

#include "spin_task.h"

/* Prints a character; spind shows a line when it is complete. */
static inline void spin_putc(char c) { *(volatile uint8_t *)SPIN_STDOUT_BASE = (uint8_t)c; }

/* Prints a string without a line end. */
static inline void spin_puts(const char *text) {
    while (*text) spin_putc(*text++);
}

/* Prints a number as eight hexadecimal digits. */
static inline void spin_put_hex(uint32_t value) {
    for (int shift = 28; shift >= 0; shift -= 4) {
        uint32_t digit = value >> shift & 15;
        spin_putc((char)(digit < 10 ? '0' + digit : 'a' + digit - 10));
    }
}

/* Prints a number in decimal. */
static inline void spin_put_dec(uint32_t value) {
    char digits[10];
    int count = 0;
    do digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count > 0) spin_putc(digits[--count]);
}

/* Low half of the cycle counter. It is written as .insn because assemblers differ on whether rv32imac includes Zicsr. */
static inline uint32_t spin_cycles(void) {
    uint32_t value;
    __asm__ volatile(".insn i 0x73, 2, %0, x0, -1024" : "=r"(value)); /* rdcycle: csrrs rd, 0xc00, x0 */
    return value;
}

#endif
