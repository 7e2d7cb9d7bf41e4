/* Compression and encodings. Each encoder writes at most `room` bytes and returns how many, or 0 if they do not suffice or the
 * input is malformed. */
#ifndef LARGE_CODEC_H
#define LARGE_CODEC_H

#include "heap.h"

/* LZ77 in the format of an LZ4 block. `table` has 1 << LZ_LOG words. */
enum { LZ_LOG = 9 };
uint32_t lz_compress(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room, uint32_t *table);
uint32_t lz_expand(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);

/* Canonical Huffman codes of bytes; the code lengths come first. */
uint32_t huffman_compress(heap *h, const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);
uint32_t huffman_expand(heap *h, const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);

/* Runs of bytes as PackBits has them. */
uint32_t runs_compress(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);
uint32_t runs_expand(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);

/* Differences of words, zigzag, seven bits a byte. */
uint32_t varint_compress(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);
uint32_t varint_expand(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room);

uint32_t base64_encode(const uint8_t *from, uint32_t length, char *to, uint32_t room);
uint32_t base64_decode(const char *from, uint32_t length, uint8_t *to, uint32_t room);

/* Move to front, in place. */
void mtf_encode(uint8_t *bytes, uint32_t length, uint8_t order[256]);
void mtf_decode(uint8_t *bytes, uint32_t length, uint8_t order[256]);

#endif
