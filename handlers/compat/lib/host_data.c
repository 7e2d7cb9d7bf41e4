/* What FPsPIN's host programs find at the start of an image's data: see spin_host.h. */
#include "spin_host.h"

__attribute__((section(".spin_host_data"))) fpspin_host_data_t __host_data = {{0}, {{0, 0}}};
uint8_t spin_host_requests[CORE_COUNT];
