/* Commands: sending frames, moving bytes between NIC memory and host memory.
 *
 * Issuing a command blocks only while SPIN_COMMANDS_IN_FLIGHT commands of this HPU are in flight. Waiting for a command is
 * optional: the engine completes a task only after its commands. Do not change the source of a command until the command is
 * complete. A refused command moves nothing and has the reason in its status.
 */
#ifndef SPIN_COMMAND_H
#define SPIN_COMMAND_H

#include "spin_device.h"
#include "spin_task.h"

/* Status of a command. */
typedef enum spin_status {
    SPIN_STATUS_DONE = 0,             /* complete, or too old to be remembered */
    SPIN_STATUS_PENDING = 1,          /* not complete yet */
    SPIN_STATUS_MALFORMED = 2,        /* command words that form no command */
    SPIN_STATUS_BAD_NIC_ADDRESS = 3,  /* NIC memory that the context may not access, or a constant of the image */
    SPIN_STATUS_BAD_HOST_ADDRESS = 4, /* host address outside the context's host memory */
    SPIN_STATUS_BAD_LENGTH = 5,       /* length above a frame's, below an Ethernet header's, or zero */
    SPIN_STATUS_NO_BUFFER = 6,        /* no free transmit buffer in time, or the task's budget is used up */
    SPIN_STATUS_UNSUPPORTED = 7,      /* a command that this engine does not carry out */
    SPIN_STATUS_FORBIDDEN_SEND = 8,   /* a frame that the context may not send */
} spin_status;

/* Sets a command word. */
static inline void spin_command_word(uint32_t index, uint32_t value) {
    *spin_reg(SPIN_REG_COMMAND_WORDS + 4 * index) = value;
}

/* Issues the command in the command words and returns its handle. */
static inline spin_cmd_t spin_command_issue(uint32_t info) {
    /* The barrier stores packet and state bytes that the compiler still holds in registers: the device reads them. */
    __asm__ volatile("" ::: "memory");
    *spin_reg(SPIN_REG_COMMAND_INFO) = info;
    return *spin_reg(SPIN_REG_COMMAND_ISSUE);
}

/* Sends `length` bytes at `data` as one frame, Ethernet header first. The context may be allowed to send only some frames. A send from
 * the L2 packet is checked when it is waited for, or else when the handler has ended. */
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
    if (host >> 32 == 0) return SPIN_FAIL; /* without an upper half it would be a NIC address */
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

/* Copies `length` bytes of NIC memory to host memory. With `event` the application is notified. */
static inline int spin_dma_to_host(uint64_t host, uint32_t nic, uint32_t length, bool event, spin_cmd_t *handle) {
    *handle = spin_dma_command(host, nic, length, SPIN_DMA_TO_HOST, event);
    return SPIN_OK;
}

/* Copies `length` bytes of host memory to NIC memory. With `event` the application is notified. */
static inline int spin_dma_from_host(uint64_t host, uint32_t nic, uint32_t length, bool event, spin_cmd_t *handle) {
    *handle = spin_dma_command(host, nic, length, SPIN_DMA_FROM_HOST, event);
    return SPIN_OK;
}

/* Writes up to SPIN_HOST_DIRECT_MAX bytes by value to host memory. Returns SPIN_FAIL for 0 bytes or more than the maximum. */
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

/* The command's status, known for the latest eight commands. */
static inline spin_status spin_cmd_status(spin_cmd_t handle) {
    *spin_reg(SPIN_REG_COMMAND_STATUS) = handle;
    return (spin_status)*spin_reg(SPIN_REG_COMMAND_STATUS);
}

#endif
