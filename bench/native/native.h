/* What the native twins of the handlers share: their job (task_t is the HPU's), commands, atomics.
 *
 * A twin does what its handler in ../../handlers or ../handlers does, on 64-bit pointers, as a function of the host. The
 * SDK's parsers and checksums are plain C and are compiled as they are. So is the work that a handler in ../handlers shares
 * with its twin by a header. The layouts of the structs are those of ../src/handlers/native.rs and ../src/handlers/command.rs. */
#ifndef NATIVE_H
#define NATIVE_H

#include <string.h>

#include <spin_packet.h>
#include <spin_reply.h>

/* Sends remembered; as many as a batch has, at least. A power of two. */
#define SENDS 4096u

/* A send as the device takes it. */
struct send {
    uint64_t from;
    uint64_t length;
};

/* Copies to host memory, and their bytes. */
struct copies {
    uint64_t count;
    uint64_t bytes;
};

struct device {
    struct copies copies;
    uint64_t count;
    struct send sends[SENDS];
};

struct job {
    uint8_t *packet;
    uint8_t *handler_mem;
    uint32_t *scratchpad;
    uint8_t *host_mem;
    struct device *device;
    uint32_t packet_size;
    uint32_t handler_mem_size;
    uint32_t scratchpad_size;
    uint32_t host_mem_size;
};

/* NATIVE_ATOMICS: what one writes when other threads do the same. Else what the only thread may do. */
#ifdef NATIVE_ATOMICS
static inline void add(uint32_t *at, uint32_t value) { __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
static inline void lock(uint32_t *at) {
    while (__atomic_exchange_n(at, 1, __ATOMIC_ACQUIRE)) {}
}
static inline void unlock(uint32_t *at) { __atomic_store_n(at, 0, __ATOMIC_RELEASE); }
static inline uint32_t add_and_get(uint32_t *at, uint32_t value) { return __atomic_add_fetch(at, value, __ATOMIC_RELAXED); }
static inline void set(uint32_t *at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
static inline void set_bits(uint32_t *at, uint32_t bits) { __atomic_fetch_or(at, bits, __ATOMIC_RELAXED); }
static inline void exclusive_or(uint64_t *at, uint64_t value) { __atomic_fetch_xor(at, value, __ATOMIC_RELAXED); }
#else
static inline void add(uint32_t *at, uint32_t value) { *at += value; }
static inline void lock(uint32_t *at) { *at = 1; }
static inline void unlock(uint32_t *at) { *at = 0; }
static inline uint32_t add_and_get(uint32_t *at, uint32_t value) { return *at += value; }
static inline void set(uint32_t *at, uint32_t value) { *at = value; }
static inline void set_bits(uint32_t *at, uint32_t bits) { *at |= bits; }
static inline void exclusive_or(uint64_t *at, uint64_t value) { *at ^= value; }
#endif

static inline void send_packet(struct job *job, const uint8_t *from, uint32_t length) {
    struct device *device = job->device;
    device->sends[device->count++ % SENDS] = (struct send){(uintptr_t)from, length};
}

/* Copies to `offset` in host memory, if it is inside. */
static inline void dma_to_host(struct job *job, uint64_t offset, const uint8_t *from, uint32_t length) {
    job->device->copies.count++;
    job->device->copies.bytes += length;
    if (offset + length <= job->host_mem_size) memcpy(job->host_mem + offset, from, length);
}

static inline bool parse_ipv4(const struct job *job, spin_packet *p) {
    return spin_parse_ipv4_at(job->packet, job->packet_size, p);
}

static inline bool parse_udp(const struct job *job, spin_packet *p) {
    return spin_parse_udp_at(job->packet, job->packet_size, p);
}

static inline bool parse_plain_udp(const struct job *job, spin_packet *p) {
    return spin_parse_plain_udp_at(job->packet, job->packet_size, p);
}

#endif
