/* An assertion that does not hold prints where, and ends the handler with its line as the error. */
#include <stdint.h>
#include <stdio.h>

#include "spin_regs.h"

#if !defined(__cplusplus) && !defined(static_assert)
#define static_assert _Static_assert
#endif

#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition)                                                                      \
    ((condition) ? (void)0                                                                     \
                 : (void)(printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition), \
                          *(volatile uint32_t *)(SPIN_DRIVER_BASE + SPIN_REG_ERROR) = __LINE__))
#endif
