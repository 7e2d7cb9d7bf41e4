/* What FPsPIN's host programs find at the start of an image's data, and the ids of requests to them: see pspin.h and spin_host.h. */
#include "spin_host.h"

__attribute__((section(".spin_host_data"))) volatile struct host_data __host_data = {{0}, {{0, 0}}};
__attribute__((section(".data_tiny_l1"))) volatile uint8_t dma_idx[NUM_CLUSTER_HPUS] = {0};
