/* For programs that include it: the registers that handlers have are in hwsched.h and util.h. */
#ifndef SPIN_HAL_PULP_H
#define SPIN_HAL_PULP_H

#include <stdint.h>

#endif
