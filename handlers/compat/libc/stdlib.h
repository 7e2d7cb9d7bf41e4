/* What of <stdlib.h> there is without a C library: no heap, and no way out but returning. */
#ifndef SPIN_STDLIB_H
#define SPIN_STDLIB_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int abs(int value);

#ifdef __cplusplus
}
#endif

#endif
