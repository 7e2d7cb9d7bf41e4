/* AES with keys of 128 or 256 bits (FIPS 197), in counter and chaining modes. */
#ifndef LARGE_AES_H
#define LARGE_AES_H

#include "heap.h"

typedef struct aes_tables {
    uint32_t encrypt[4][256];
    uint32_t decrypt[4][256];
    uint8_t box[256], inverse[256];
} aes_tables;

typedef struct aes_key {
    uint32_t rounds;
    uint32_t encrypt[60], decrypt[60];
} aes_key;

void aes_init(aes_tables *t);
/* `words` is 4 or 8. */
void aes_expand(const aes_tables *t, aes_key *key, const uint8_t *bytes, uint32_t words);
void aes_encrypt(const aes_tables *t, const aes_key *key, const uint8_t from[16], uint8_t to[16]);
void aes_decrypt(const aes_tables *t, const aes_key *key, const uint8_t from[16], uint8_t to[16]);
void aes_counter(const aes_tables *t, const aes_key *key, uint8_t counter[16], uint8_t *bytes, uint32_t length);
/* Whole blocks, in place. */
void aes_chain_encrypt(const aes_tables *t, const aes_key *key, uint8_t vector[16], uint8_t *bytes, uint32_t length);
void aes_chain_decrypt(const aes_tables *t, const aes_key *key, uint8_t vector[16], uint8_t *bytes, uint32_t length);

#endif
