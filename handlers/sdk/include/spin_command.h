/* Commands: sending frames, moving bytes between NIC memory and host memory.
 *
 * Issuing waits only while SPIN_COMMANDS_IN_FLIGHT commands of this HPU are in flight. Waiting for a command is
 * optional: the engine holds a task's completion back until its commands are done. The source of a command must
 * stay as it is until the command is complete. A refused command moves nothing and says why in its status.
 */
#ifndef SPIN_COMMAND_H
#define SPIN_COMMAND_H

#include "spin_device.h"
#include "spin_task.h"

/* How a command ended. */
typedef enum spin_status {
    SPIN_STATUS_DONE = 0,             /* complete, or so old that it is forgotten */
    SPIN_STATUS_PENDING = 1,          /* not complete yet */
    SPIN_STATUS_MALFORMED = 2,        /* the words name no command */
    SPIN_STATUS_BAD_NIC_ADDRESS = 3,  /* NIC memory the context may not touch, or a constant of the image */
    SPIN_STATUS_BAD_HOST_ADDRESS = 4, /* outside the context's host memory */
    SPIN_STATUS_BAD_LENGTH = 5,       /* longer than a frame, shorter than an Ethernet header, or empty */
    SPIN_STATUS_NO_BUFFER = 6,        /* no transmit buffer came free in time, or the task's budget is used up */
    SPIN_STATUS_UNSUPPORTED = 7,      /* not carried out by this engine */
} spin_status;

/* A command word. */
static inline void spin_command_word(uint32_t index, uint32_t value) {
    *spin_reg(SPIN_REG_COMMAND_WORDS + 4 * index) = value;
}

/* Issues the command whose words are written. */
static inline spin_cmd_t spin_command_issue(uint32_t info) {
    /* The device reads packet and state bytes that the compiler may still hold in registers. */
    __asm__ volatile("" ::: "memory");
    *spin_reg(SPIN_REG_COMMAND_INFO) = info;
    return *spin_reg(SPIN_REG_COMMAND_ISSUE);
}

/* Sends `length` bytes at `data` as one frame, Ethernet header first. */
static inline int spin_send_packet(const void *data, uint32_t length, spin_cmd_t *handle) {
    spin_command_word(0, 0); /* destination node: none for raw frames */
    spin_command_word(1, 0); /* fid 0: a raw frame */
    spin_command_word(2, (uint32_t)data);
    spin_command_word(3, 0); /* upper half 0: a NIC address */
    spin_command_word(4, length);
    *handle = spin_command_issue(SPIN_INFO_SEND);
    return SPIN_OK;
}

/* Sends `length` bytes of host memory as one frame. */
static inline int spin_send_from_host(uint64_t host, uint32_t length, spin_cmd_t *handle) {
    if (host >> 32 == 0) return SPIN_FAIL; /* would be taken for a NIC address */
    spin_command_word(0, 0);
    spin_command_word(1, 0);
    spin_command_word(2, (uint32_t)host);
    spin_command_word(3, (uint32_t)(host >> 32));
    spin_command_word(4, length);
    *handle = spin_command_issue(SPIN_INFO_SEND);
    return SPIN_OK;
}

static inline spin_cmd_t spin_dma_command(uint64_t host, uint32_t nic, uint32_t length, uint32_t direction, bool event) {
    spin_command_word(0, (uint32_t)host);
    spin_command_word(1, (uint32_t)(host >> 32));
    spin_command_word(2, nic);
    spin_command_word(3, length);
    spin_command_word(4, direction);
    return spin_command_issue(SPIN_INFO_DMA | (event ? SPIN_INFO_EVENT : 0));
}

/* Copies `length` bytes of NIC memory to host memory; `event` tells the host. */
static inline int spin_dma_to_host(uint64_t host, uint32_t nic, uint32_t length, bool event, spin_cmd_t *handle) {
    *handle = spin_dma_command(host, nic, length, SPIN_DMA_TO_HOST, event);
    return SPIN_OK;
}

/* Copies `length` bytes of host memory to NIC memory; `event` tells the host. */
static inline int spin_dma_from_host(uint64_t host, uint32_t nic, uint32_t length, bool event, spin_cmd_t *handle) {
    *handle = spin_dma_command(host, nic, length, SPIN_DMA_FROM_HOST, event);
    return SPIN_OK;
}

/* Writes up to SPIN_HOST_DIRECT_MAX bytes, given by value, to host memory. SPIN_FAIL: no bytes or too many. */
static inline int spin_write_bytes_to_host(uint64_t host, const void *data, uint32_t length, spin_cmd_t *handle) {
    if (length == 0 || length > SPIN_HOST_DIRECT_MAX) return SPIN_FAIL;
    spin_command_word(0, (uint32_t)host);
    spin_command_word(1, (uint32_t)(host >> 32));
    spin_command_word(2, length << 1 | SPIN_DMA_TO_HOST);
    for (uint32_t done = 0; done < length; done += 4) {
        uint32_t word = 0;
        __builtin_memcpy(&word, (const uint8_t *)data + done, length - done < 4 ? length - done : 4);
        spin_command_word(3 + done / 4, word);
    }
    *handle = spin_command_issue(SPIN_INFO_HOST_DIRECT);
    return SPIN_OK;
}

/* Writes eight bytes, little-endian, to host memory. */
static inline int spin_write_to_host(uint64_t host, uint64_t value, spin_cmd_t *handle) {
    spin_command_word(0, (uint32_t)host);
    spin_command_word(1, (uint32_t)(host >> 32));
    spin_command_word(2, 8 << 1 | SPIN_DMA_TO_HOST);
    spin_command_word(3, (uint32_t)value);
    spin_command_word(4, (uint32_t)(value >> 32));
    *handle = spin_command_issue(SPIN_INFO_HOST_DIRECT);
    return SPIN_OK;
}

/* How the command ended; known for the latest eight commands. */
static inline spin_status spin_cmd_status(spin_cmd_t handle) {
    *spin_reg(SPIN_REG_COMMAND_STATUS) = handle;
    return (spin_status)*spin_reg(SPIN_REG_COMMAND_STATUS);
}

#endif
