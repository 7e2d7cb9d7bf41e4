#include "tables.h"

static uint32_t hash_u64(uint64_t key) { return mix32((uint32_t)key ^ rotl((uint32_t)(key >> 32), 16) * 0x9e3779b1u); }
static uint32_t hash_flow(flow_key key) { return murmur3(&key, sizeof key, 0x5eed); }
static bool same_flow(flow_key a, flow_key b) {
    return a.from == b.from && a.to == b.to && a.from_port == b.from_port && a.to_port == b.to_port;
}
static uint32_t hash_mac(mac_key key) { return fnv1a(&key, sizeof key); }
static bool same_mac(mac_key a, mac_key b) { return memcmp(&a, &b, sizeof a) == 0; }

static uint32_t hash_port(port_key key) { return mix32((uint32_t)key.protocol << 16 | key.port); }
static bool same_port(port_key a, port_key b) { return a.port == b.port && a.protocol == b.protocol; }
static uint32_t hash_wide(wide_key key) { return (uint32_t)siphash(&key, sizeof key, 1, 2); }
static bool same_wide(wide_key a, wide_key b) { return a.high == b.high && a.low == b.low; }

#define SAME(a, b) ((a) == (b))

#define NAME words
#define KEY uint32_t
#define HASH mix32
#define EQUAL SAME
#include "robin.inc"

#define NAME longs
#define KEY uint64_t
#define HASH hash_u64
#define EQUAL SAME
#include "robin.inc"

#define NAME flows
#define KEY flow_key
#define HASH hash_flow
#define EQUAL same_flow
#include "robin.inc"

#define NAME macs
#define KEY mac_key
#define HASH hash_mac
#define EQUAL same_mac
#include "robin.inc"

#define NAME wides
#define KEY wide_key
#define HASH hash_wide
#define EQUAL same_wide
#include "robin.inc"

#define NAME ports
#define KEY port_key
#define HASH hash_port
#define EQUAL same_port
#include "robin.inc"

#define NAME map32
#define KEY uint32_t
#include "btree.inc"

#define NAME map64
#define KEY uint64_t
#include "btree.inc"

#define NAME map_signed
#define KEY int32_t
#include "btree.inc"

#define NAME map_times
#define KEY int64_t
#include "btree.inc"

#define NAME map16
#define KEY uint16_t
#include "btree.inc"

static uint32_t to_u32(uint64_t key) { return (uint32_t)(key ^ key >> 32); }
static uint64_t to_u64(uint64_t key) { return key; }
static int64_t to_time(uint64_t key) { return (int64_t)(key << 40 | key >> 24); }
static port_key to_port(uint64_t key) { return (port_key){(uint16_t)key, (uint16_t)(key >> 32)}; }
static wide_key to_wide(uint64_t key) { return (wide_key){key * 0x9e3779b97f4a7c15u, key ^ 0x20010db8}; }
static int32_t to_signed(uint64_t key) { return (int32_t)(key ^ key >> 32); }
static uint16_t to_u16(uint64_t key) { return (uint16_t)(key ^ key >> 20 ^ key >> 40); }
static flow_key to_flow(uint64_t key) {
    return (flow_key){(uint32_t)key | 0x0a000000, (uint32_t)(key >> 32) | 0xc0a80000, (uint16_t)(key >> 5), (uint16_t)(key >> 40)};
}
static mac_key to_mac(uint64_t key) {
    mac_key mac = {.vlan = (uint16_t)(key >> 48 & 15)};
    for (int i = 0; i < 6; i++) mac.bytes[i] = (uint8_t)(key >> 8 * i);
    return mac;
}

#define COMMON(NAME, STATE, OF)                                                                                              \
    static uint32_t NAME##_do_insert(heap *h, uint32_t *words, uint64_t key, uint32_t value) {                               \
        return NAME##_insert(h, (NAME##_##STATE *)words, OF(key), value);                                                    \
    }                                                                                                                        \
    static uint32_t NAME##_do_find(heap *h, const uint32_t *words, uint64_t key) {                                           \
        const uint32_t *value = NAME##_find(h, (const NAME##_##STATE *)words, OF(key));                                      \
        return value == NULL ? ~0u : *value;                                                                                 \
    }                                                                                                                        \
    static uint32_t NAME##_do_erase(heap *h, uint32_t *words, uint64_t key) {                                                \
        return NAME##_erase(h, (NAME##_##STATE *)words, OF(key));                                                            \
    }                                                                                                                        \
    static uint32_t NAME##_do_check(heap *h, const uint32_t *words) { return NAME##_check(h, (const NAME##_##STATE *)words); } \
    static void NAME##_do_clear(heap *h, uint32_t *words) { NAME##_clear(h, (NAME##_##STATE *)words); }

#define HASHED(NAME, OF)                                                                                \
    COMMON(NAME, table, OF)                                                                             \
    static uint32_t NAME##_do_sum(heap *h, const uint32_t *words, uint64_t from, uint64_t to) {         \
        const NAME##_table *t = (const NAME##_table *)words;                                            \
        uint32_t at = (uint32_t)from & t->mask, sum = 0, most = (uint32_t)to & 63;                      \
        const NAME##_slot *entry;                                                                       \
        while (most-- > 0 && (entry = NAME##_next(h, t, &at)) != NULL) sum = rotl(sum, 3) + entry->value; \
        return sum;                                                                                     \
    }

#define ORDERED(NAME, KEY, OF)                                                                     \
    COMMON(NAME, tree, OF)                                                                         \
    static bool NAME##_add(void *context, KEY key, uint32_t value) {                               \
        uint32_t *sum = context;                                                                   \
        sum[0] = rotl(sum[0], 7) + (uint32_t)key + value;                                          \
        return --sum[1] != 0;                                                                      \
    }                                                                                              \
    static uint32_t NAME##_do_sum(heap *h, const uint32_t *words, uint64_t from, uint64_t to) {    \
        uint32_t sum[2] = {0, 64};                                                                 \
        KEY low = OF(from), high = OF(to);                                                         \
        if (high < low) {                                                                          \
            KEY other = low;                                                                       \
            low = high;                                                                            \
            high = other;                                                                          \
        }                                                                                          \
        NAME##_range(h, (const NAME##_tree *)words, low, high, NAME##_add, sum);                   \
        return sum[0] ^ sum[1];                                                                    \
    }

HASHED(words, to_u32)
HASHED(longs, to_u64)
HASHED(flows, to_flow)
HASHED(macs, to_mac)
HASHED(wides, to_wide)
HASHED(ports, to_port)
ORDERED(map32, uint32_t, to_u32)
ORDERED(map64, uint64_t, to_u64)
ORDERED(map_signed, int32_t, to_signed)
ORDERED(map_times, int64_t, to_time)
ORDERED(map16, uint16_t, to_u16)

/* Names as a container: keys are written in letters. */
static uint32_t spell(uint64_t key, char *text) {
    static const char *const syllables[16] = {"ba", "co", "di", "fu", "ge", "ha", "jo", "ki", "lu", "me", "na", "po", "ri", "su", "te", "va"};
    uint32_t length = 0;
    do {
        const char *syllable = syllables[key & 15];
        text[length++] = syllable[0];
        text[length++] = syllable[1];
    } while ((key >>= 4) != 0);
    text[length] = 0;
    return length;
}

static uint32_t names_do_insert(heap *h, uint32_t *words, uint64_t key, uint32_t value) {
    char text[36];
    uint32_t length = spell(key, text);
    return names_insert(h, (names *)words, text, length, value);
}

static uint32_t names_do_find(heap *h, const uint32_t *words, uint64_t key) {
    char text[36];
    uint32_t length = spell(key, text);
    ref found = names_find(h, (const names *)words, text, length);
    return found == 0 ? ~0u : ((const name_node *)heap_at(h, found))->value;
}

static uint32_t names_do_erase(heap *h, uint32_t *words, uint64_t key) {
    char text[36];
    uint32_t length = spell(key, text);
    return names_erase(h, (names *)words, text, length);
}

static uint32_t names_do_sum(heap *h, const uint32_t *words, uint64_t from, uint64_t to) {
    static const char *const patterns[8] = {"*", "ba*", "*co", "?[a-e]*", "*di*fu*", "[^b]*", "??????", "[ab-g]?*[aeiou]"};
    char text[36], other[36];
    uint32_t sum = 0, count = names_match(h, (const names *)words, patterns[to & 7], &sum);
    uint32_t length = spell(from, text), other_length = spell(to, other);
    bool renamed = names_rename(h, (names *)words, text, length, other, other_length);
    return sum + count * 3 + renamed;
}

static uint32_t names_do_check(heap *h, const uint32_t *words) { return names_check(h, (const names *)words); }
static void names_do_clear(heap *h, uint32_t *words) { names_clear(h, (names *)words); }

#define OPERATIONS(NAME) \
    {#NAME, NAME##_do_insert, NAME##_do_find, NAME##_do_erase, NAME##_do_sum, NAME##_do_check, NAME##_do_clear}

const container containers[CONTAINERS] = {
    OPERATIONS(words), OPERATIONS(longs), OPERATIONS(flows),      OPERATIONS(macs),      OPERATIONS(wides), OPERATIONS(ports),
    OPERATIONS(map32), OPERATIONS(map64), OPERATIONS(map_signed), OPERATIONS(map_times), OPERATIONS(map16), OPERATIONS(names),
};
