/* Small arithmetic, registers, what prints and asserts only when asked to, and which HPU this is. */
#ifndef SPIN_UTIL_H
#define SPIN_UTIL_H

#include <stdint.h>
#include <stdio.h>

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
/* The remainder by a power of two `b`. The quotient by the power of two whose logarithm is `log2_b`. */
#define FAST_MOD(a, b) AND(a, (b) - 1)
#define FAST_DIV(a, log2_b) ((a) >> (log2_b))

#define STRINGIFY_UNEXPANDED(x) #x
#define STRINGIFY(x) STRINGIFY_UNEXPANDED(x)

/* Ends the handler: a statement. */
#define TERMINATE (*(volatile uint32_t *)SPIN_END_OF_COMPUTATION = 1)

/* Statements. Control and status registers by name or number: those of csr.rs in spind's sources exist, any other ends the handler. */
#define read_csr(reg, val) \
    do { \
        uint32_t csr_value_; \
        __asm__ volatile("csrr %0, " STRINGIFY(reg) : "=r"(csr_value_)); \
        (val) = (__typeof__(val))csr_value_; \
    } while (0)
#define write_csr(reg, val) \
    do { __asm__ volatile("csrw " STRINGIFY(reg) ", %0" ::"rK"((uint32_t)(val))); } while (0)
#define set_csr(reg, mask) \
    do { __asm__ volatile("csrs " STRINGIFY(reg) ", %0" ::"rK"((uint32_t)(mask))); } while (0)
#define clear_csr(reg, mask) \
    do { __asm__ volatile("csrc " STRINGIFY(reg) ", %0" ::"rK"((uint32_t)(mask))); } while (0)

/* Statements. General registers by name: `tp`, `a0`. */
#define read_register(reg, val) \
    do { \
        uint32_t register_value_; \
        __asm__ volatile("mv %0, " STRINGIFY(reg) : "=r"(register_value_)); \
        (val) = (__typeof__(val))register_value_; \
    } while (0)
#define write_register(reg, val) \
    do { __asm__ volatile("mv " STRINGIFY(reg) ", %0" ::"r"((uint32_t)(val))); } while (0)

/* A symbol in the code, with a number behind the name that makes it unique. */
#define LABEL(name) __asm__ volatile(STRINGIFY(name) "_%=:" ::: "memory")
/* An instruction that does nothing, to be found in a trace. */
#define TRACING_DUMMY_INSTR() __asm__ volatile("nop")

/* Prints with file, function and line. */
#define SPIN_PRINTF(format, ...) printf("%s:%s:%d: " format, __FILE__, __func__, __LINE__, ##__VA_ARGS__)
/* Prints with LOG defined. */
#ifdef LOG
#define DEBUG_PRINT(...) printf(__VA_ARGS__)
#else
#define DEBUG_PRINT(...) ((void)0)
#endif
/* With CHECK_ASSERTS defined, a condition that does not hold prints where, and ends the handler with its line as the error. */
#ifdef CHECK_ASSERTS
#define ASSERT(condition) \
    do { \
        if (!(condition)) { \
            SPIN_PRINTF("%s does not hold\n", #condition); \
            *(volatile uint32_t *)(SPIN_DRIVER_BASE + SPIN_REG_ERROR) = __LINE__; \
        } \
    } while (0)
#else
#define ASSERT(condition) ((void)0)
#endif

/* HPU within its cluster, and its cluster: from tp, which nothing else changes. */
static inline uint32_t user_core_id(void) {
    uint32_t id;
    __asm__("mv %0, tp" : "=r"(id));
    return id & 31;
}
static inline uint32_t user_cluster_id(void) {
    uint32_t id;
    __asm__("mv %0, tp" : "=r"(id));
    return id >> 5 & 63;
}

#endif
