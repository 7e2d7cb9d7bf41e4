/* Small arithmetic, and control and status registers. */
#ifndef SPIN_UTIL_H
#define SPIN_UTIL_H

#include <stdint.h>

#include "spin_regs.h"

#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
/* Rounded up. */
#define DIV_CEIL(a, b) (((a) + (b) - 1) / (b))
#define AND(a, b) ((a) & (b))
/* For a `b` that is a power of two. */
#define FAST_MOD(a, b) AND(a, (b) - 1)
#define FAST_DIV(a, b) ((a) >> __builtin_ctz(b))

#define STRINGIFY_UNEXPANDED(x) #x
#define STRINGIFY(x) STRINGIFY_UNEXPANDED(x)

/* Ends the handler. */
#define TERMINATE() (*(volatile uint32_t *)SPIN_END_OF_COMPUTATION = 1)

/* Registers by name or number: those of csr.rs in spind's sources are there, any other ends the handler. */
#define read_csr(reg)                                                   \
    __extension__({                                                     \
        uint32_t csr_value_;                                            \
        __asm__ volatile("csrr %0, " STRINGIFY(reg) : "=r"(csr_value_)); \
        csr_value_;                                                     \
    })
#define write_csr(reg, value) \
    __extension__({ __asm__ volatile("csrw " STRINGIFY(reg) ", %0" ::"rK"((uint32_t)(value))); })
#define set_csr(reg, bits) SPIN_CSR_EXCHANGE("csrrs", reg, bits)
#define clear_csr(reg, bits) SPIN_CSR_EXCHANGE("csrrc", reg, bits)
#define swap_csr(reg, value) SPIN_CSR_EXCHANGE("csrrw", reg, value)
#define SPIN_CSR_EXCHANGE(op, reg, value)                                                                          \
    __extension__({                                                                                                \
        uint32_t csr_value_;                                                                                       \
        __asm__ volatile(op " %0, " STRINGIFY(reg) ", %1" : "=r"(csr_value_) : "rK"((uint32_t)(value)));            \
        csr_value_;                                                                                                \
    })

#endif
