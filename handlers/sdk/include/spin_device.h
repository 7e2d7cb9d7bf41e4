/* The device page, common to all ABIs: its registers, and waiting for a command. */
#ifndef SPIN_DEVICE_H
#define SPIN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "spin_regs.h"

#define SPIN_OK 0
#define SPIN_FAIL 1

/* Handle of a command of this task. */
typedef uint32_t spin_cmd_t;

/* A device register. */
static inline volatile uint32_t *spin_reg(uint32_t offset) {
    return (volatile uint32_t *)(SPIN_DRIVER_BASE + offset);
}

/* Waits until the command is complete. */
static inline int spin_cmd_wait(spin_cmd_t handle) {
    *spin_reg(SPIN_REG_COMMAND_WAIT) = handle;
    __asm__ volatile("" ::: "memory");
    return SPIN_OK;
}

/* Whether the command is complete. */
static inline int spin_cmd_test(spin_cmd_t handle, bool *completed) {
    *spin_reg(SPIN_REG_COMMAND_TEST) = handle;
    *completed = *spin_reg(SPIN_REG_COMMAND_TEST) & 1;
    __asm__ volatile("" ::: "memory");
    return SPIN_OK;
}

#endif
