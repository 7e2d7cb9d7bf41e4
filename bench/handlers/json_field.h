/* Search for an integer in a JSON text, for the handler and its native twin. */
#ifndef JSON_FIELD_H
#define JSON_FIELD_H

#include <spin_packet.h>

#define JSON_KEY_MAX 28u

/* Handler memory. */
typedef struct json_state {
    char key[JSON_KEY_MAX]; /* the application's, without escapes */
    uint32_t key_len;
    uint32_t found;
    uint32_t missing;
    uint32_t broken;
    uint32_t sum; /* of the integers, modulo 2^32 */
} json_state;

typedef enum json_result { JSON_FOUND, JSON_MISSING, JSON_BROKEN } json_result;

static inline const uint8_t *json_skip_space(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    return at;
}

/* Returns the place behind the quote that ends the string in which `at` is, or NULL if there is none. */
static inline const uint8_t *json_skip_string(const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        uint8_t byte = *at++;
        if (byte == '"') return at;
        if (byte == '\\' && at < end) at++;
    }
    return NULL;
}

/* Returns the comma or closing bracket that follows a value, or NULL if there is none. */
static inline const uint8_t *json_skip_value(const uint8_t *at, const uint8_t *end) {
    uint32_t depth = 0;
    while (at < end) {
        switch (*at) {
        case '"':
            at = json_skip_string(at + 1, end);
            if (!at) return NULL;
            continue;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            if (depth == 0) return at;
            depth--;
            break;
        case ',':
            if (depth == 0) return at;
            break;
        }
        at++;
    }
    return NULL;
}

/* Reads an integer that a comma or the object's end follows. */
static inline bool json_read_integer(const uint8_t *at, const uint8_t *end, uint32_t *value) {
    bool is_negative = at < end && *at == '-';
    if (is_negative) at++;
    const uint8_t *digits = at;
    uint32_t integer = 0;
    while (at < end && *at >= '0' && *at <= '9') integer = integer * 10 + (*at++ - '0');
    if (at == digits) return false;
    at = json_skip_space(at, end);
    *value = is_negative ? -integer : integer;
    return at < end && (*at == ',' || *at == '}');
}

/* Finds the integer with the key at the top level. Only members before it are looked at, and their values are not checked. */
static inline json_result json_find(const uint8_t *at, uint32_t length, const char *key, uint32_t key_len, uint32_t *value) {
    const uint8_t *end = at + length;
    at = json_skip_space(at, end);
    if (at == end || *at != '{') return JSON_BROKEN;
    at = json_skip_space(at + 1, end);
    if (at < end && *at == '}') return JSON_MISSING;
    for (;;) {
        at = json_skip_space(at, end);
        if (at == end || *at != '"') return JSON_BROKEN;
        const uint8_t *name = at + 1;
        at = json_skip_string(name, end);
        if (!at) return JSON_BROKEN;
        uint32_t name_len = (uint32_t)(at - 1 - name);
        at = json_skip_space(at, end);
        if (at == end || *at != ':') return JSON_BROKEN;
        at = json_skip_space(at + 1, end);
        if (name_len == key_len && memcmp(name, key, key_len) == 0)
            return json_read_integer(at, end, value) ? JSON_FOUND : JSON_BROKEN;
        at = json_skip_value(at, end);
        if (!at || *at == ']') return JSON_BROKEN;
        if (*at == '}') return JSON_MISSING;
        at++;
    }
}

#endif
