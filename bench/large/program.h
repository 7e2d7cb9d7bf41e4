/* Programs in packets: operations on the library's structures, and a checksum of their results. */
#ifndef LARGE_PROGRAM_H
#define LARGE_PROGRAM_H

#include "bignum.h"
#include "cache.h"
#include "datatype.h"
#include "expression.h"
#include "tables.h"

enum { KINDS = 30, SLOTS = 16, BIG_WORDS = 32, BIGS = 4 };

typedef struct blob {
    ref at;
    uint32_t length;
} blob;

/* At the start of the memory; the heap follows. The first members are read by src/large/work.rs. */
typedef struct world {
    uint32_t is_ready;
    uint32_t checksum;
    uint32_t messages, packets, operations;
    uint32_t broken; /* structures that broke a rule */
    uint32_t counts[KINDS]; /* operations by kind */
    blob blobs[SLOTS];
    ref types[SLOTS];
    uint32_t containers[CONTAINERS][CONTAINER_WORDS];
    int32_t variables[VARIABLES];
    ref bigs; /* BIGS numbers of BIG_WORDS words */
    ref crc_tables, aes_tables;
    cache cache;
    timers timers;
} world;

enum { WORLD_BYTES = (sizeof(world) + 63) & ~63u };

/* An operation of a program: how much of what, by a slot and a seed. */
typedef struct step {
    uint8_t kind, slot;
    uint16_t amount;
    uint32_t seed;
} step;

/* Begins a message; the first one initialises the memory, which is zeroed. False if it is too small. */
bool program_open(uint8_t *memory, uint32_t bytes);
/* Runs the operations of a packet. */
void program_run(uint8_t *memory, uint32_t bytes, const uint8_t *steps, uint32_t length);
/* Ends a message: checks all structures. */
void program_close(uint8_t *memory, uint32_t bytes);

#endif
