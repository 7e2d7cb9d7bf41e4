/* Operations on bytes and numbers: sorting, matrices, compression, digests, encryption, large numbers. */
#include "aes.h"
#include "codec.h"
#include "matrix.h"
#include "operations.h"
#include "sort.h"

static uint32_t sort(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    const sorter *how = &sorters[s->seed % SORTERS];
    ref room = b->at == 0 ? 0 : heap_alloc(h, b->length + 16);
    if (room == 0) return NO_MEMORY;
    uint32_t count = b->length / how->width, result = count == 0 ? 0 : how->run(heap_at(h, b->at), count, heap_at(h, room), s->seed >> 8);
    heap_free(h, room);
    return result;
}

static uint32_t matrix(world *w, heap *h, const step *s) {
    blob *a = blob_of(w, s->slot), *b = blob_of(w, (s->slot & 15) + 1u + (s->slot >> 4) % 15);
    uint32_t bytes = (a->length < b->length ? a->length : b->length) & ~7u;
    ref to = a->at == 0 || b->at == 0 || bytes < 256 ? 0 : heap_alloc(h, bytes);
    if (to == 0) return NO_MEMORY;
    uint32_t result = matrix_runs[s->seed % MATRIX_TYPES](heap_at(h, a->at), heap_at(h, b->at), heap_at(h, to), bytes, s->seed >> 8 & 0xffff);
    heap_free(h, to);
    return result;
}

/* Compresses a blob and expands the result. */
static uint32_t compress(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    uint32_t room = b->length * 2 + 256, packed = 0, expanded = 0, way = s->seed % 5;
    ref to = b->at == 0 ? 0 : heap_alloc(h, room), back = to == 0 ? 0 : heap_zalloc(h, b->length + 8, 1);
    ref table = back == 0 ? 0 : heap_alloc(h, sizeof(uint32_t) << LZ_LOG);
    uint32_t result = NO_MEMORY;
    if (table != 0) {
        uint8_t *bytes = heap_at(h, b->at), *out = heap_at(h, to), *again = heap_at(h, back), *order = heap_at(h, table);
        uint32_t length = b->length;
        switch (way) {
            case 0:
                packed = lz_compress(bytes, length, out, room, heap_at(h, table));
                expanded = lz_expand(out, packed, again, length);
                break;
            case 1:
                mtf_encode(bytes, length, order);
                packed = huffman_compress(h, bytes, length, out, room);
                expanded = huffman_expand(h, out, packed, again, length);
                mtf_decode(bytes, length, order);
                mtf_decode(again, expanded, order);
                break;
            case 2:
                packed = runs_compress(bytes, length, out, room);
                expanded = runs_expand(out, packed, again, length);
                break;
            case 3:
                length &= ~3u;
                packed = varint_compress(bytes, length, out, room);
                expanded = varint_expand(out, packed, again, length);
                break;
            default:
                packed = base64_encode(bytes, length, (char *)out, room);
                expanded = base64_decode((const char *)out, packed, again, length);
        }
        result = murmur3(out, packed, packed) + (expanded == length && memcmp(again, bytes, length) == 0);
        /* A damaged byte must not harm. */
        if (packed != 0 && (s->amount & 3) == 0) {
            out[s->amount % packed] ^= (uint8_t)(1 + s->amount % 255);
            uint32_t damaged = 0;
            if (way == 0) damaged = lz_expand(out, packed, again, length);
            if (way == 1) damaged = huffman_expand(h, out, packed, again, length);
            if (way == 2) damaged = runs_expand(out, packed, again, length);
            result = rotl(result, 4) + damaged;
        }
    }
    heap_free(h, table);
    heap_free(h, back);
    heap_free(h, to);
    return result;
}

static uint32_t hash(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    if (b->at == 0) return NO_MEMORY;
    const uint8_t *bytes = heap_at(h, b->at);
    uint64_t sip = siphash(bytes, b->length, s->seed, s->amount);
    uint32_t sum = crc32_update(heap_at(h, w->crc_tables), s->seed, bytes, b->length);
    sum = rotl(sum, 1) + adler32(bytes, b->length);
    sum = rotl(sum, 1) + fletcher32(bytes, b->length);
    sum = rotl(sum, 1) + fnv1a(bytes, b->length);
    return sum ^ (uint32_t)sip ^ (uint32_t)(sip >> 32);
}

static uint32_t digest_blob(world *w, heap *h, const step *s) {
    static const digest *const kinds[3] = {&digest_md5, &digest_sha1, &digest_sha256};
    blob *b = blob_of(w, s->slot);
    ref work = b->at == 0 ? 0 : heap_zalloc(h, 2, sizeof(digest_state)), result = work == 0 ? 0 : heap_zalloc(h, 32, 1);
    uint32_t sum = NO_MEMORY;
    if (result != 0) {
        const uint8_t *bytes = heap_at(h, b->at);
        uint32_t key_length = s->amount % 100 < b->length ? s->amount % 100 : 0;
        digest_hmac(kinds[s->seed % 3], heap_at(h, work), bytes, key_length, bytes, b->length, heap_at(h, result));
        sum = fnv1a(heap_at(h, result), 32);
    }
    heap_free(h, result);
    heap_free(h, work);
    return sum;
}

static uint32_t stream(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    uint32_t key[8], nonce[3] = {s->seed, s->amount, 3};
    if (b->at == 0) return NO_MEMORY;
    for (uint32_t i = 0; i < 8; i++) key[i] = mix32(s->seed + i);
    chacha20(key, 1, nonce, heap_at(h, b->at), b->length);
    return blob_hash(h, b);
}

static uint32_t encrypt(world *w, heap *h, const step *s) {
    blob *b = blob_of(w, s->slot);
    ref schedule = b->at == 0 ? 0 : heap_zalloc(h, 1, sizeof(aes_key));
    if (schedule == 0) return NO_MEMORY;
    if (w->aes_tables == 0 && (w->aes_tables = heap_zalloc(h, 1, sizeof(aes_tables))) != 0) aes_init(heap_at(h, w->aes_tables));
    uint32_t result = NO_MEMORY;
    if (w->aes_tables != 0) {
        const aes_tables *t = heap_at(h, w->aes_tables);
        aes_key *key = heap_at(h, schedule);
        uint8_t bytes[32], vector[16] = {0}, *data = heap_at(h, b->at);
        for (uint32_t i = 0; i < 32; i++) bytes[i] = (uint8_t)(s->seed >> i % 25);
        aes_expand(t, key, bytes, s->amount & 1 ? 4 : 8);
        switch (s->amount >> 1 & 3) {
            case 0: aes_chain_encrypt(t, key, vector, data, b->length); break;
            case 1: aes_chain_decrypt(t, key, vector, data, b->length); break;
            default: aes_counter(t, key, vector, data, b->length);
        }
        result = blob_hash(h, b);
    }
    heap_free(h, schedule);
    return result;
}

static uint32_t count_big(world *w, heap *h, const step *s) {
    enum { N = BIG_WORDS };
    uint32_t *all = heap_at(h, w->bigs), *a = all + s->slot % BIGS * N, *b = all + (s->slot >> 2) % BIGS * N, *to = all + (s->slot >> 4) % BIGS * N;
    ref work = heap_zalloc(h, 8 * N, sizeof(uint32_t));
    if (work == 0) return NO_MEMORY;
    uint32_t *wide = heap_at(h, work), *rest = wide + 2 * N, *room = rest + 2 * N, seed = s->seed, result = 0;
    switch (s->seed >> 24 & 7) {
        case 0:
            for (uint32_t i = 0; i < N; i++) to[i] = next_random(&seed);
            break;
        case 1: result = big_add(to, a, b, N); break;
        case 2: result = big_subtract(to, a, b, N); break;
        case 3:
            big_multiply(wide, a, b, N, room);
            memcpy(to, wide + (s->amount & 15), N * sizeof *to);
            break;
        case 4:
            result = big_divide(h, wide, rest, a, N, b, 4 + s->amount % 20);
            memcpy(to, s->amount & 1 ? wide : rest, N * sizeof *to);
            break;
        case 5: {
            uint32_t count = 4, exponent[4] = {s->seed | 1, s->amount, 0, 0};
            b[0] |= 1;
            result = big_power(h, wide, a, exponent, b, count);
            memcpy(to, wide, count * sizeof *to);
            break;
        }
        case 6:
            result = big_gcd(h, wide, a, b, 4);
            memcpy(to, wide, 4 * sizeof *to);
            break;
        default: {
            big_square(wide, a, N);
            text out = text_in((char *)room, 4 * N * (uint32_t)sizeof *room);
            big_write(h, wide, N / 4, &out);
            result = fnv1a(out.at, out.length);
        }
    }
    heap_free(h, work);
    return result + murmur3(to, N * sizeof *to, 1);
}

static uint32_t compare(world *w, heap *h, const step *s) {
    blob *a = blob_of(w, s->slot), *b = blob_of(w, (s->slot >> 4) + 1u);
    uint32_t a_length = a->length < 40 ? a->length : 40, b_length = b->length < 40 ? b->length : 40;
    ref room = a->at == 0 || b->at == 0 ? 0 : heap_zalloc(h, 3 * (b_length + 1), sizeof(uint32_t));
    if (room == 0) return NO_MEMORY;
    uint32_t distance = edit_distance(heap_at(h, a->at), a_length, heap_at(h, b->at), b_length, 20 + s->amount % 40, heap_at(h, room));
    uint32_t common = common_length(heap_at(h, a->at), a_length, heap_at(h, b->at), b_length, heap_at(h, room));
    heap_free(h, room);
    return distance << 16 | common;
}

const operation_kind data_operations[9] = {
    {"sort", sort}, {"matrix", matrix}, {"compress", compress}, {"hash", hash}, {"digest", digest_blob},
    {"stream", stream}, {"encrypt", encrypt}, {"number", count_big}, {"compare", compare},
};
