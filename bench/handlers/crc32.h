/* CRC-32 of IEEE 802.3 by tables, for the handler and its native twin. */
#ifndef CRC32_H
#define CRC32_H

#include <spin_packet.h>

#define CRC_BYTES 4u

/* Handler memory. The application writes the tables; a table's entry is the CRC of a byte and 0 to 3 bytes of zeroes. */
typedef struct crc_state {
    uint32_t table[4][256];
    uint32_t good;
    uint32_t bad;
    uint32_t short_payloads; /* shorter than a CRC */
    uint32_t last;
} crc_state;

/* Slicing by four: four table lookups per word. */
static inline uint32_t crc32_of(const uint32_t table[4][256], const uint8_t *data, uint32_t length) {
    uint32_t crc = 0xffffffff;
    for (; length >= 4; length -= 4, data += 4) {
        crc ^= spin_load32(data);
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^ table[0][crc >> 24];
    }
    for (; length > 0; length--) crc = crc >> 8 ^ table[0][(crc ^ *data++) & 255];
    return ~crc;
}

#endif
