#include "json.h"

#include "digest.h"

enum { DEEPEST = 8 };

static json *value_at(heap *h, ref v) { return heap_at(h, v); }

/* What is being read. */
typedef struct reader {
    heap *h;
    const char *s;
    uint32_t at;
} reader;

static void skip_space(reader *r) {
    while (r->s[r->at] == ' ' || r->s[r->at] == '\n' || r->s[r->at] == '\t' || r->s[r->at] == '\r') r->at++;
}

static bool accept(reader *r, const char *word) {
    uint32_t length = 0;
    for (; word[length] != 0; length++)
        if (r->s[r->at + length] != word[length]) return false;
    r->at += length;
    return true;
}

static ref make(heap *h, json_kind kind) {
    ref v = heap_zalloc(h, 1, sizeof(json));
    if (v != 0) value_at(h, v)->kind = kind;
    return v;
}

static bool parse_hex(const char *s, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t digit;
        char one[2] = {s[i], 0};
        if (parse_unsigned(one, 16, &digit) == 0) return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static uint32_t put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    to[0] = (char)(0xe0 | c >> 12);
    to[1] = (char)(0x80 | (c >> 6 & 63));
    to[2] = (char)(0x80 | (c & 63));
    return 3;
}

/* Bytes of a string behind its quotation mark; with `to` they are written. Sets `length`. */
static bool read_string(reader *r, char *to, uint32_t *length) {
    uint32_t out = 0;
    for (;; r->at++) {
        char c = r->s[r->at], unit[4];
        uint32_t bytes = 1;
        unit[0] = c;
        if (c == '"') break;
        if ((uint8_t)c < 0x20) return false;
        if (c == '\\') {
            c = r->s[++r->at];
            switch (c) {
                case 'n': unit[0] = '\n'; break;
                case 't': unit[0] = '\t'; break;
                case 'r': unit[0] = '\r'; break;
                case 'b': unit[0] = '\b'; break;
                case 'f': unit[0] = '\f'; break;
                case '"': case '\\': case '/': unit[0] = c; break;
                case 'u': {
                    uint32_t code;
                    if (!parse_hex(r->s + r->at + 1, &code)) return false;
                    bytes = put_utf8(unit, code);
                    r->at += 4;
                    break;
                }
                default: return false;
            }
        }
        for (uint32_t i = 0; i < bytes; i++, out++)
            if (to != NULL) to[out] = unit[i];
    }
    r->at++;
    *length = out;
    return true;
}

static ref parse_string(reader *r) {
    uint32_t start = ++r->at, length;
    if (!read_string(r, NULL, &length)) return 0;
    ref v = make(r->h, JSON_STRING), bytes = heap_alloc(r->h, length + 1);
    if (v == 0 || bytes == 0) {
        heap_free(r->h, v);
        heap_free(r->h, bytes);
        return 0;
    }
    char *to = heap_at(r->h, bytes);
    memset(to, 0, heap_usable(r->h, bytes));
    r->at = start;
    read_string(r, to, &length);
    value_at(r->h, v)->first = bytes;
    value_at(r->h, v)->count = length;
    return v;
}

static ref parse_value(reader *r, uint32_t depth);

static ref parse_members(reader *r, bool is_object, uint32_t depth) {
    char end = is_object ? '}' : ']';
    ref v = make(r->h, is_object ? JSON_OBJECT : JSON_ARRAY), last = 0;
    if (v == 0) return 0;
    r->at++;
    skip_space(r);
    if (r->s[r->at] == end) {
        r->at++;
        return v;
    }
    for (;;) {
        ref name = 0;
        skip_space(r);
        if (is_object) {
            name = r->s[r->at] == '"' ? parse_string(r) : 0;
            skip_space(r);
            if (name == 0 || !accept(r, ":")) {
                json_free(r->h, name);
                break;
            }
        }
        ref member = parse_value(r, depth);
        if (member == 0) {
            json_free(r->h, name);
            break;
        }
        value_at(r->h, member)->name = name;
        *(last == 0 ? &value_at(r->h, v)->first : &value_at(r->h, last)->next) = member;
        last = member;
        value_at(r->h, v)->count++;
        skip_space(r);
        if (accept(r, ",")) continue;
        if (r->s[r->at] != end) break;
        r->at++;
        return v;
    }
    json_free(r->h, v);
    return 0;
}

static ref parse_value(reader *r, uint32_t depth) {
    if (depth == DEEPEST) return 0;
    skip_space(r);
    switch (r->s[r->at]) {
        case '{': return parse_members(r, true, depth + 1);
        case '[': return parse_members(r, false, depth + 1);
        case '"': return parse_string(r);
        case 't': return accept(r, "true") ? make(r->h, JSON_TRUE) : 0;
        case 'f': return accept(r, "false") ? make(r->h, JSON_FALSE) : 0;
        case 'n': return accept(r, "null") ? make(r->h, JSON_NULL) : 0;
    }
    int64_t number;
    uint32_t length = parse_signed(r->s + r->at, &number);
    ref v = length == 0 ? 0 : make(r->h, JSON_NUMBER);
    if (v == 0) return 0;
    r->at += length;
    value_at(r->h, v)->number = number;
    return v;
}

ref json_parse(heap *h, const char *s, uint32_t *at) {
    reader r = {h, s, 0};
    ref v = parse_value(&r, 0);
    skip_space(&r);
    *at = r.at;
    if (v != 0 && s[r.at] != 0) {
        json_free(h, v);
        return 0;
    }
    return v;
}

void json_free(heap *h, ref v) {
    if (v == 0) return;
    const json *value = value_at(h, v);
    if (value->kind == JSON_STRING) heap_free(h, value->first);
    if (value->kind >= JSON_ARRAY) {
        for (ref member = value->first, next; member != 0; member = next) {
            next = value_at(h, member)->next;
            json_free(h, member);
        }
    }
    json_free(h, value->name);
    heap_free(h, v);
}

static void write_string(heap *h, ref v, text *out) {
    const uint8_t *bytes = heap_at(h, value_at(h, v)->first);
    text_put(out, '"');
    for (uint32_t i = 0; i < value_at(h, v)->count; i++) {
        switch (bytes[i]) {
            case '"': text_puts(out, "\\\""); break;
            case '\\': text_puts(out, "\\\\"); break;
            case '\n': text_puts(out, "\\n"); break;
            case '\t': text_puts(out, "\\t"); break;
            default:
                if (bytes[i] < 0x20) text_format(out, "\\u%04x", bytes[i]);
                else text_put(out, (char)bytes[i]);
        }
    }
    text_put(out, '"');
}

static void new_line(text *out, uint32_t indent) {
    if (indent != 0) text_format(out, "\n%*s", (int)indent - 1, "");
}

static void write_below(heap *h, ref v, text *out, uint32_t indent, uint32_t level) {
    const json *value = value_at(h, v);
    switch (value->kind) {
        case JSON_NULL: text_puts(out, "null"); return;
        case JSON_FALSE: text_puts(out, "false"); return;
        case JSON_TRUE: text_puts(out, "true"); return;
        case JSON_NUMBER: text_format(out, "%lld", (long long)value->number); return;
        case JSON_STRING: write_string(h, v, out); return;
    }
    text_put(out, value->kind == JSON_OBJECT ? '{' : '[');
    for (ref member = value->first; member != 0; member = value_at(h, member)->next) {
        if (member != value->first) text_put(out, ',');
        new_line(out, indent * (level + 1));
        if (value_at(h, member)->name != 0) {
            write_string(h, value_at(h, member)->name, out);
            text_puts(out, indent != 0 ? ": " : ":");
        }
        write_below(h, member, out, indent, level + 1);
    }
    if (value->count != 0) new_line(out, indent * level);
    text_put(out, value->kind == JSON_OBJECT ? '}' : ']');
}

void json_write(heap *h, ref v, text *out, uint32_t indent) { write_below(h, v, out, indent, 0); }

static int compare_strings(heap *h, ref a, ref b) {
    const json *left = value_at(h, a), *right = value_at(h, b);
    uint32_t least = left->count < right->count ? left->count : right->count;
    int order = memcmp(heap_at(h, left->first), heap_at(h, right->first), least);
    return order != 0 ? order : left->count < right->count ? -1 : left->count > right->count;
}

ref json_find(heap *h, ref v, const char *path) {
    while (v != 0 && *path != 0) {
        const json *value = value_at(h, v);
        ref member = value->first;
        if (*path == '[') {
            uint64_t index;
            uint32_t length = parse_unsigned(path + 1, 10, &index);
            if (length == 0 || path[1 + length] != ']' || value->kind != JSON_ARRAY) return 0;
            for (; member != 0 && index > 0; index--) member = value_at(h, member)->next;
            path += length + 2;
        } else {
            uint32_t length = 0;
            if (*path == '.') path++;
            while (path[length] != 0 && path[length] != '.' && path[length] != '[') length++;
            if (value->kind != JSON_OBJECT) return 0;
            for (; member != 0; member = value_at(h, member)->next) {
                const json *name = value_at(h, value_at(h, member)->name);
                if (name->count == length && memcmp(heap_at(h, name->first), path, length) == 0) break;
            }
            path += length;
        }
        v = member;
    }
    return v;
}

bool json_equal(heap *h, ref a, ref b) {
    const json *left = value_at(h, a), *right = value_at(h, b);
    if (left->kind != right->kind || left->count != right->count) return false;
    if (left->kind == JSON_NUMBER) return left->number == right->number;
    if (left->kind == JSON_STRING) return compare_strings(h, a, b) == 0;
    if (left->kind < JSON_NUMBER) return true;
    for (a = left->first, b = right->first; a != 0; a = value_at(h, a)->next, b = value_at(h, b)->next) {
        if (left->kind == JSON_OBJECT && compare_strings(h, value_at(h, a)->name, value_at(h, b)->name) != 0) return false;
        if (!json_equal(h, a, b)) return false;
    }
    return true;
}

uint32_t json_hash(heap *h, ref v) {
    const json *value = value_at(h, v);
    uint32_t hash = value->kind * 0x9e3779b1u + value->count;
    if (value->kind == JSON_NUMBER) return mix32(hash ^ (uint32_t)value->number ^ rotl((uint32_t)(value->number >> 32), 7));
    if (value->kind == JSON_STRING) return murmur3(heap_at(h, value->first), value->count, hash);
    if (value->kind < JSON_NUMBER) return mix32(hash);
    for (ref member = value->first; member != 0; member = value_at(h, member)->next) {
        if (value->kind == JSON_OBJECT) hash = rotl(hash, 11) + json_hash(h, value_at(h, member)->name);
        hash = mix32(hash + json_hash(h, member));
    }
    return hash;
}

/* Merge sort of a list of members. */
static ref sort_list(heap *h, ref list, uint32_t count) {
    if (count < 2) return list;
    ref middle = list, first = 0, *end = &first;
    for (uint32_t i = 1; i < count / 2; i++) middle = value_at(h, middle)->next;
    ref right = value_at(h, middle)->next;
    value_at(h, middle)->next = 0;
    ref left = sort_list(h, list, count / 2);
    right = sort_list(h, right, count - count / 2);
    while (left != 0 && right != 0) {
        bool takes_right = compare_strings(h, value_at(h, right)->name, value_at(h, left)->name) < 0;
        ref *from = takes_right ? &right : &left;
        *end = *from;
        end = &value_at(h, *from)->next;
        *from = *end;
    }
    *end = left != 0 ? left : right;
    return first;
}

void json_sort(heap *h, ref v) {
    json *value = value_at(h, v);
    if (value->kind < JSON_ARRAY) return;
    for (ref member = value->first; member != 0; member = value_at(h, member)->next) json_sort(h, member);
    if (value->kind == JSON_OBJECT) value->first = sort_list(h, value->first, value->count);
}
