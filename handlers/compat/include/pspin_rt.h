/* What PsPIN's runtime offers to handlers. The runtime itself is spind. */
#ifndef SPIN_PSPIN_RT_H
#define SPIN_PSPIN_RT_H

#include "pspin.h"

static inline uint32_t rt_core_id(void) { return user_core_id(); }
static inline uint32_t rt_cluster_id(void) { return user_cluster_id(); }
static inline uint32_t rt_nb_pe(void) { return NB_CORES; }

#ifdef SPIN_ABI_FPSPIN

/* Bytes of a page of host memory. */
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif

/* Numbers of control and status registers. Handlers have the hart id and the counters. */
#define PULP_CSR_MSTATUS 0x300
#define PULP_CSR_MTVEC 0x305
#define PULP_CSR_MEPC 0x341
#define PULP_CSR_MCAUSE 0x342
#define PULP_CSR_MTVAL 0x343
#define PULP_CSR_MCYCLE 0xb00
#define PULP_CSR_MINSTRET 0xb02
#define PULP_CSR_MHARTID 0xf14

/* Environment calls: statements. `ret` gets what the call returns. The only one there is returns the cycle counter. */
#define PSPIN_ECALL_CYCLES 1
#define ecall(num, a0, a1, a2, a3, a4, a5, a6, ret) \
    do { \
        register uint32_t ecall_7_ __asm__("a7") = (uint32_t)(num); \
        register uint32_t ecall_0_ __asm__("a0") = (uint32_t)(a0); \
        register uint32_t ecall_1_ __asm__("a1") = (uint32_t)(a1); \
        register uint32_t ecall_2_ __asm__("a2") = (uint32_t)(a2); \
        register uint32_t ecall_3_ __asm__("a3") = (uint32_t)(a3); \
        register uint32_t ecall_4_ __asm__("a4") = (uint32_t)(a4); \
        register uint32_t ecall_5_ __asm__("a5") = (uint32_t)(a5); \
        register uint32_t ecall_6_ __asm__("a6") = (uint32_t)(a6); \
        __asm__ volatile("ecall" \
                         : "+r"(ecall_0_) \
                         : "r"(ecall_7_), "r"(ecall_1_), "r"(ecall_2_), "r"(ecall_3_), "r"(ecall_4_), "r"(ecall_5_), "r"(ecall_6_) \
                         : "memory"); \
        (ret) = (__typeof__(ret))ecall_0_; \
    } while (0)
#define ecall_1(num, a0, ret) ecall(num, a0, 0, 0, 0, 0, 0, 0, ret)
#define ecall_0(num, ret) ecall_1(num, 0, ret)

#endif

#endif
