/* What PsPIN's runtime offers to handlers. The runtime itself is spind. */
#ifndef SPIN_PSPIN_RT_H
#define SPIN_PSPIN_RT_H

#include "pspin.h"

static inline uint32_t rt_core_id(void) { return user_core_id(); }
static inline uint32_t rt_cluster_id(void) { return user_cluster_id(); }
static inline uint32_t rt_nb_pe(void) { return NB_CORES; }

#endif
