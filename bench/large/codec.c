#include "codec.h"

#include "digest.h"

enum { LZ_LEAST = 4, LZ_TAIL = 12, LZ_WINDOW = 65535 };

/* A length in the token's nibble and bytes of 255. */
static uint8_t *put_length(uint8_t *to, const uint8_t *end, uint32_t length) {
    for (; length >= 255; length -= 255) {
        if (to == end) return NULL;
        *to++ = 255;
    }
    if (to == end) return NULL;
    *to++ = (uint8_t)length;
    return to;
}

static uint8_t *put_sequence(uint8_t *to, const uint8_t *end, const uint8_t *literals, uint32_t count, uint32_t offset, uint32_t match) {
    if (to == end) return NULL;
    uint8_t *token = to++;
    uint32_t extra = match == 0 ? 0 : match - LZ_LEAST;
    *token = (uint8_t)((count < 15 ? count : 15) << 4 | (extra < 15 ? extra : 15));
    if (count >= 15 && (to = put_length(to, end, count - 15)) == NULL) return NULL;
    if ((uint32_t)(end - to) < count) return NULL;
    memcpy(to, literals, count);
    to += count;
    if (match == 0) return to;
    if (end - to < 2) return NULL;
    *to++ = (uint8_t)offset;
    *to++ = (uint8_t)(offset >> 8);
    return extra >= 15 ? put_length(to, end, extra - 15) : to;
}

static uint32_t match_length(const uint8_t *a, const uint8_t *b, const uint8_t *limit) {
    const uint8_t *start = a;
    while (limit - a >= 4) {
        uint32_t difference = load32(a) ^ load32(b);
        if (difference != 0) return (uint32_t)(a - start) + (uint32_t)__builtin_ctz(difference) / 8;
        a += 4;
        b += 4;
    }
    while (a < limit && *a == *b) a++, b++;
    return (uint32_t)(a - start);
}

uint32_t lz_compress(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room, uint32_t *table) {
    uint8_t *out = to;
    const uint8_t *end = to + room;
    uint32_t at = 0, literals = 0, misses = 0;
    memset(table, 0, sizeof(uint32_t) << LZ_LOG);
    while (length >= LZ_TAIL && at < length - LZ_TAIL) {
        uint32_t *slot = &table[load32(from + at) * 2654435761u >> (32 - LZ_LOG)], other = *slot;
        *slot = at + 1;
        if (other == 0 || at + 1 - other > LZ_WINDOW || load32(from + other - 1) != load32(from + at)) {
            at += 1 + (misses++ >> 6);
            continue;
        }
        misses = 0;
        other--;
        while (at > literals && other > 0 && from[at - 1] == from[other - 1]) at--, other--;
        uint32_t match = match_length(from + at, from + other, from + length - 5);
        if (match < LZ_LEAST) {
            at++;
            continue;
        }
        if ((out = put_sequence(out, end, from + literals, at - literals, at - other, match)) == NULL) return 0;
        at += match;
        literals = at;
    }
    out = put_sequence(out, end, from + literals, length - literals, 0, 0);
    return out == NULL ? 0 : (uint32_t)(out - to);
}

static const uint8_t *get_length(const uint8_t *at, const uint8_t *end, uint32_t *length) {
    uint8_t byte;
    do {
        if (at == end) return NULL;
        byte = *at++;
        *length += byte;
    } while (byte == 255);
    return at;
}

uint32_t lz_expand(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    const uint8_t *at = from, *end = from + length;
    uint32_t done = 0;
    while (at < end) {
        uint8_t token = *at++;
        uint32_t literals = token >> 4, match = token & 15;
        if (literals == 15 && (at = get_length(at, end, &literals)) == NULL) return 0;
        if ((uint32_t)(end - at) < literals || room - done < literals) return 0;
        memcpy(to + done, at, literals);
        at += literals;
        done += literals;
        if (at == end) return done;
        if (end - at < 2) return 0;
        uint32_t offset = at[0] | (uint32_t)at[1] << 8;
        at += 2;
        if (match == 15 && (at = get_length(at, end, &match)) == NULL) return 0;
        match += LZ_LEAST;
        if (offset == 0 || offset > done || room - done < match) return 0;
        if (offset >= match) {
            memcpy(to + done, to + done - offset, match);
            done += match;
        } else {
            for (; match > 0; match--, done++) to[done] = to[done - offset];
        }
    }
    return 0;
}

/* Working memory of both directions. */
typedef struct huffman {
    uint32_t weights[511];
    uint16_t parents[511];
    uint16_t queue[257];
    uint16_t codes[256];
    uint8_t lengths[256];
    uint16_t first[17], counts[17], offsets[17];
    uint8_t symbols[256];
} huffman;

enum { LONGEST = 15 };

static void queue_push(huffman *w, uint32_t count, uint16_t node) {
    uint32_t at = count;
    while (at > 0 && w->weights[w->queue[(at - 1) / 2]] > w->weights[node]) {
        w->queue[at] = w->queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->queue[at] = node;
}

static uint16_t queue_pop(huffman *w, uint32_t count) {
    uint16_t first = w->queue[0], moved = w->queue[count - 1];
    uint32_t at = 0, kid;
    while ((kid = 2 * at + 1) < count - 1) {
        if (kid + 1 < count - 1 && w->weights[w->queue[kid + 1]] < w->weights[w->queue[kid]]) kid++;
        if (w->weights[moved] <= w->weights[w->queue[kid]]) break;
        w->queue[at] = w->queue[kid];
        at = kid;
    }
    w->queue[at] = moved;
    return first;
}

/* Code lengths of the weights; false if one is too long. */
static bool huffman_lengths(huffman *w) {
    uint32_t count = 0, next = 256;
    for (uint16_t s = 0; s < 256; s++)
        if (w->weights[s] != 0) queue_push(w, count++, s);
    if (count == 1) {
        w->lengths[w->queue[0]] = 1;
        return true;
    }
    while (count > 1) {
        uint16_t a = queue_pop(w, count--), b = queue_pop(w, count--);
        w->weights[next] = w->weights[a] + w->weights[b];
        w->parents[a] = w->parents[b] = (uint16_t)next;
        queue_push(w, count++, (uint16_t)next++);
    }
    for (uint32_t s = 0; s < 256; s++) {
        uint32_t length = 0;
        if (w->weights[s] == 0) continue;
        for (uint32_t node = s; node != next - 1; node = w->parents[node]) length++;
        if (length > LONGEST) return false;
        w->lengths[s] = (uint8_t)length;
    }
    return true;
}

/* Canonical codes of the lengths. False if the lengths are those of no code. */
static bool huffman_codes(huffman *w) {
    uint32_t code = 0, offset = 0;
    memset(w->counts, 0, sizeof w->counts);
    for (int s = 0; s < 256; s++) w->counts[w->lengths[s]]++;
    w->counts[0] = 0;
    for (int length = 1; length <= LONGEST; length++) {
        code = (code + w->counts[length - 1]) << 1;
        if (code + w->counts[length] > 1u << length) return false;
        w->first[length] = (uint16_t)code;
        w->offsets[length] = (uint16_t)offset;
        offset += w->counts[length];
    }
    uint16_t used[17] = {0};
    for (int s = 0; s < 256; s++) {
        uint32_t length = w->lengths[s];
        if (length == 0) continue;
        w->codes[s] = (uint16_t)(w->first[length] + used[length]);
        w->symbols[w->offsets[length] + used[length]++] = (uint8_t)s;
    }
    return true;
}

uint32_t huffman_compress(heap *h, const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    ref work = heap_zalloc(h, 1, sizeof(huffman));
    if (work == 0) return 0;
    huffman *w = heap_at(h, work);
    uint32_t out = 128, bits = 0, held = 0;
    for (uint32_t i = 0; i < length; i++) w->weights[from[i]]++;
    bool fits = length > 0 && room > 132 && huffman_lengths(w) && huffman_codes(w);
    if (fits) {
        for (uint32_t s = 0; s < 128; s++) to[s] = (uint8_t)(w->lengths[2 * s] | w->lengths[2 * s + 1] << 4);
        store32(to + out, length);
        out += 4;
    }
    for (uint32_t i = 0; fits && i < length; i++) {
        held = held << w->lengths[from[i]] | w->codes[from[i]];
        bits += w->lengths[from[i]];
        for (; bits >= 8 && fits; bits -= 8) {
            fits = out < room;
            if (fits) to[out++] = (uint8_t)(held >> (bits - 8));
        }
    }
    if (fits && bits > 0) {
        fits = out < room;
        if (fits) to[out++] = (uint8_t)(held << (8 - bits));
    }
    heap_free(h, work);
    return fits ? out : 0;
}

uint32_t huffman_expand(heap *h, const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    ref work = length < 132 ? 0 : heap_zalloc(h, 1, sizeof(huffman));
    if (work == 0) return 0;
    huffman *w = heap_at(h, work);
    for (uint32_t s = 0; s < 128; s++) {
        w->lengths[2 * s] = from[s] & 15;
        w->lengths[2 * s + 1] = from[s] >> 4;
    }
    uint32_t count = load32(from + 128), done = 0, at = 132, code = 0, code_length = 0, bit = 0;
    bool valid = count <= room && huffman_codes(w);
    while (valid && done < count) {
        if (at == length) {
            valid = false;
            break;
        }
        code = code << 1 | (from[at] >> (7 - bit) & 1);
        if (++bit == 8) bit = 0, at++;
        if (++code_length > LONGEST) valid = false;
        else if (code - w->first[code_length] < w->counts[code_length] && code >= w->first[code_length]) {
            to[done++] = w->symbols[w->offsets[code_length] + code - w->first[code_length]];
            code = code_length = 0;
        }
    }
    heap_free(h, work);
    return valid ? done : 0;
}

uint32_t runs_compress(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    uint32_t out = 0;
    for (uint32_t at = 0; at < length;) {
        uint32_t run = 1;
        while (run < 128 && at + run < length && from[at + run] == from[at]) run++;
        if (run >= 3) {
            if (room - out < 2) return 0;
            to[out++] = (uint8_t)(257 - run);
            to[out++] = from[at];
            at += run;
            continue;
        }
        uint32_t count = 0;
        while (count < 128 && at + count < length) {
            const uint8_t *next = from + at + count;
            if (at + count + 2 < length && next[0] == next[1] && next[1] == next[2]) break;
            count++;
        }
        if (room - out < count + 1) return 0;
        to[out++] = (uint8_t)(count - 1);
        memcpy(to + out, from + at, count);
        out += count;
        at += count;
    }
    return out;
}

uint32_t runs_expand(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    uint32_t out = 0;
    for (uint32_t at = 0; at < length;) {
        uint32_t token = from[at++], count = token < 128 ? token + 1 : 257 - token;
        if (token == 128) continue;
        if (room - out < count) return 0;
        if (token < 128) {
            if (length - at < count) return 0;
            memcpy(to + out, from + at, count);
            at += count;
        } else {
            if (at == length) return 0;
            memset(to + out, from[at++], count);
        }
        out += count;
    }
    return out;
}

uint32_t varint_compress(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    uint32_t out = 0, before = 0;
    for (uint32_t at = 0; at + 4 <= length; at += 4) {
        uint32_t value = load32(from + at), difference = value - before;
        before = value;
        for (difference = difference << 1 ^ -(difference >> 31); difference > 127; difference >>= 7) {
            if (out == room) return 0;
            to[out++] = (uint8_t)(difference | 128);
        }
        if (out == room) return 0;
        to[out++] = (uint8_t)difference;
    }
    return out;
}

uint32_t varint_expand(const uint8_t *from, uint32_t length, uint8_t *to, uint32_t room) {
    uint32_t out = 0, before = 0, value = 0, shift = 0;
    for (uint32_t at = 0; at < length; at++) {
        value |= (uint32_t)(from[at] & 127) << shift;
        shift += 7;
        if (from[at] & 128) {
            if (shift > 28) return 0;
            continue;
        }
        if (room - out < 4) return 0;
        before += value >> 1 ^ -(value & 1);
        store32(to + out, before);
        out += 4;
        value = shift = 0;
    }
    return shift == 0 ? out : 0;
}

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

uint32_t base64_encode(const uint8_t *from, uint32_t length, char *to, uint32_t room) {
    if (room < (length + 2) / 3 * 4) return 0;
    uint32_t out = 0, at = 0;
    for (; at + 3 <= length; at += 3) {
        uint32_t bits = (uint32_t)from[at] << 16 | (uint32_t)from[at + 1] << 8 | from[at + 2];
        to[out++] = base64_digits[bits >> 18];
        to[out++] = base64_digits[bits >> 12 & 63];
        to[out++] = base64_digits[bits >> 6 & 63];
        to[out++] = base64_digits[bits & 63];
    }
    if (at < length) {
        uint32_t bits = (uint32_t)from[at] << 16 | (at + 1 < length ? (uint32_t)from[at + 1] << 8 : 0);
        to[out++] = base64_digits[bits >> 18];
        to[out++] = base64_digits[bits >> 12 & 63];
        to[out++] = at + 1 < length ? base64_digits[bits >> 6 & 63] : '=';
        to[out++] = '=';
    }
    return out;
}

static uint32_t base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return (uint32_t)(c - 'A');
    if (c >= 'a' && c <= 'z') return (uint32_t)(c - 'a') + 26;
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0') + 52;
    return c == '+' ? 62 : c == '/' ? 63 : 64;
}

uint32_t base64_decode(const char *from, uint32_t length, uint8_t *to, uint32_t room) {
    uint32_t out = 0, held = 0, bits = 0;
    while (length > 0 && from[length - 1] == '=') length--;
    for (uint32_t at = 0; at < length; at++) {
        uint32_t value = base64_value(from[at]);
        if (value == 64) return 0;
        held = held << 6 | value;
        bits += 6;
        if (bits < 8) continue;
        if (out == room) return 0;
        bits -= 8;
        to[out++] = (uint8_t)(held >> bits);
    }
    return out;
}

static void mtf_start(uint8_t order[256]) {
    for (int i = 0; i < 256; i++) order[i] = (uint8_t)i;
}

void mtf_encode(uint8_t *bytes, uint32_t length, uint8_t order[256]) {
    mtf_start(order);
    for (uint32_t i = 0; i < length; i++) {
        uint8_t byte = bytes[i], at = 0;
        while (order[at] != byte) at++;
        bytes[i] = at;
        for (; at > 0; at--) order[at] = order[at - 1];
        order[0] = byte;
    }
}

void mtf_decode(uint8_t *bytes, uint32_t length, uint8_t order[256]) {
    mtf_start(order);
    for (uint32_t i = 0; i < length; i++) {
        uint8_t at = bytes[i], byte = order[at];
        bytes[i] = byte;
        for (; at > 0; at--) order[at] = order[at - 1];
        order[0] = byte;
    }
}
