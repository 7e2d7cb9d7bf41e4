/* Execution contexts, handlers and NIC memory, for programs on the host. */
#ifndef SPIN_HOST_SPIN_H
#define SPIN_HOST_SPIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "spin_hw_conf.h"

#ifdef __cplusplus
#define SPIN_STATIC_ASSERT(condition) static_assert(condition, #condition)
#else
#define SPIN_STATIC_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* Return values of all functions; with SPIN_ERR a line on stderr has the reason. */
#define SPIN_SUCCESS 0
#define SPIN_ERR 1

/* An address in NIC memory. */
typedef uint32_t spin_nic_addr_t;
/* Addresses and sizes of NIC memory, and addresses of the host. */
typedef uint32_t mem_addr_t;
typedef uint32_t mem_size_t;
typedef uint64_t host_addr_t;

/* An execution context, given with each packet. Packets whose fields are all equal have the same context. A handler at address 0 is
 * absent. */
typedef struct __attribute__((packed)) spin_ec {
    uint32_t handler_mem_addr; /* handler memory, within L2_HND_BUFF_START and its size */
    uint32_t handler_mem_size;
    uint64_t host_mem_addr; /* host memory: any address; the program's callbacks serve it */
    uint32_t host_mem_size;
    uint32_t hh_addr; /* header handler */
    uint32_t hh_size;
    uint32_t ph_addr; /* payload handler */
    uint32_t ph_size;
    uint32_t th_addr; /* completion handler */
    uint32_t th_size;
    uint32_t scratchpad_addr[NUM_CLUSTERS]; /* offsets in the clusters' scratchpad areas */
    uint32_t scratchpad_size[NUM_CLUSTERS];
} spin_ec_t;

SPIN_STATIC_ASSERT(sizeof(spin_ec_t) == 44 + 8 * NUM_CLUSTERS);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, handler_mem_size) == 4);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, host_mem_addr) == 8);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, host_mem_size) == 16);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, hh_addr) == 20);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, ph_addr) == 28);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, th_addr) == 36);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, scratchpad_addr) == 44);
SPIN_STATIC_ASSERT(offsetof(spin_ec_t, scratchpad_size) == 44 + 4 * NUM_CLUSTERS);

#ifdef __cplusplus
extern "C" {
#endif

/* Copy `size` bytes to or from NIC memory: L1 data, scratchpads, L2 data and handler memory; program memory is readable only. The
 * copy is done when the function returns. The completion callback gets `user` at the time when the access would be complete. */
int spin_nicmem_write(spin_nic_addr_t addr, void *data, size_t size, void *user);
int spin_nicmem_read(spin_nic_addr_t addr, void *data, size_t size, void *user);

/* Finds a function of an image by name. The first call loads the image. There is one program memory, so all other calls must name
 * the same image. An unknown name leaves `addr` and `size` unchanged. */
int spin_find_handler_by_name(const char *elf, const char *name, spin_nic_addr_t *addr, size_t *size);

#ifdef __cplusplus
}
#endif

#endif
