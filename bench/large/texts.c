/* Operations on texts: formatting, JSON, regular expressions, expressions. */
#include "json.h"
#include "operations.h"
#include "regex.h"

enum { ROOM = 1024 };

static uint32_t length_in(const text *t) { return t->length < t->room ? t->length : t->room - 1; }

static uint32_t format(world *w, heap *h, const step *s) {
    ref room = heap_alloc(h, ROOM);
    if (room == 0) return NO_MEMORY;
    text out = text_in(heap_at(h, room), ROOM);
    uint32_t seed = s->seed, a = next_random(&seed), b = next_random(&seed);
    int64_t wide = (int64_t)((uint64_t)a << 32 | b);
    text_format(&out, "%d|%+5d|% d|%-8d|%08d|%.6d;", (int)a, (int)(b & 255), (int)(b >> 9), (int)(a & 4095), (int)b, (int)(a >> 12));
    text_format(&out, "%u %x %#X %#o %5.3u%%;", a, b, a >> 8, b >> 16, a & 63);
    text_format(&out, "%hd %hhu %lld %llx %*d %.*s;", (int)a, b, (long long)wide, (long long)wide, (int)(a & 15), (int)b,
                (int)(b & 7), "precision");
    text_format(&out, "%c%-6s|%6s|%s", 'a' + (int)(a % 26), containers[a % CONTAINERS].name, containers[b % CONTAINERS].name,
                element_name((element)(a % ELEMENTS)));
    for (uint32_t i = 0; i < s->amount % 4; i++) text_format(&out, ",%llu", (unsigned long long)w->variables[i] * w->variables[i + 1]);
    uint64_t value = 0;
    uint32_t read = parse_unsigned(out.at + 1, 10, &value), sum = xxh32(out.at, length_in(&out), read) ^ (uint32_t)value;
    heap_free(h, room);
    return sum;
}

/* A text with arrays and objects. */
static void write_json(text *out, uint32_t *seed, uint32_t depth) {
    uint32_t kind = next_random(seed) >> 11 & 7, count = 1 + (*seed >> 15 & 3);
    if (depth == 4 || kind < 3) {
        static const char *const constants[6] = {"true", "false", "null", "\"a\\u00e9\\n\"", "\"\"", "\"text \\\"quoted\\\"\""};
        if (*seed & 1) text_format(out, "%d", (int32_t)*seed >> (*seed & 15));
        else text_puts(out, constants[(*seed >> 3) % 6]);
        return;
    }
    text_puts(out, kind < 5 ? "[ " : "{");
    for (uint32_t i = 0; i < count; i++) {
        if (i != 0) text_puts(out, ", ");
        if (kind >= 5) text_format(out, "\"%c%u\" : ", 'a' + (int)(next_random(seed) % 3), i);
        write_json(out, seed, depth + 1);
    }
    text_puts(out, kind < 5 ? "]" : " }");
}

static uint32_t use_json(world *w, heap *h, const step *s) {
    static const char *const paths[6] = {"list[1]", "list[0].a0", "name", "list[2].b1[0]", "more.a0.c0", "list"};
    ref room = heap_alloc(h, ROOM);
    (void)w;
    if (room == 0) return NO_MEMORY;
    text out = text_in(heap_at(h, room), ROOM);
    uint32_t seed = s->seed, end, sum;
    text_format(&out, "{\"name\":\"%08x\",\"list\":[", seed);
    for (uint32_t i = 0; i < 3; i++) {
        if (i != 0) text_put(&out, ',');
        write_json(&out, &seed, 1);
    }
    text_puts(&out, "], \"more\": ");
    write_json(&out, &seed, 0);
    text_put(&out, s->amount % 16 == 3 ? ']' : '}');
    ref v = json_parse(h, out.at, &end);
    sum = end;
    if (v != 0) {
        sum = json_hash(h, v);
        json_sort(h, v);
        text written = text_in(out.at, ROOM);
        json_write(h, v, &written, s->amount & 3);
        ref again = written.length < ROOM ? json_parse(h, written.at, &end) : 0;
        if (again != 0) sum = rotl(sum, 3) + json_equal(h, v, again);
        json_free(h, again);
        ref found = json_find(h, v, paths[s->amount % 6]);
        sum = rotl(sum, 5) ^ xxh32(written.at, length_in(&written), found != 0 ? json_hash(h, found) : 0);
        json_free(h, v);
    }
    heap_free(h, room);
    return sum;
}

static uint32_t search(world *w, heap *h, const step *s) {
    static const char *const patterns[12] = {
        "(\\w+) (\\w+)",  "q[a-u]+k",   "(a|b|the )+d",     "^.*?dog",  "[^aeiou ]{1}", "fox|cat|dog$",
        "(\\w*)o(\\w*) ", "\\s\\S\\s?", "(x+x+)+y",         "(lazy|(very )?quick) dog", "[0-9a-f]+$", "(((a)*b)*c)?r.n",
    };
    blob *b = blob_of(w, s->slot);
    ref program = b->at == 0 ? 0 : regex_compile(h, patterns[s->seed % 12]);
    if (program == 0) return NO_MEMORY;
    uint32_t groups[2 * GROUPS], from = s->seed >> 8 & 127, sum = 0;
    for (int found = 0; found < 4 && from < b->length; found++) {
        uint32_t length = b->length - from < 160 ? b->length - from : 160;
        if (!regex_search(h, program, (const char *)heap_at(h, b->at) + from, length, groups)) break;
        sum = murmur3(groups, sizeof groups, sum + from);
        from += groups[1] + 1;
    }
    heap_free(h, program);
    return sum + 1;
}

static uint32_t evaluate(world *w, heap *h, const step *s) {
    static const char *const patterns[10] = {
        "a := b + %d * (c - %d)", "x := max(a, %d) %% (abs(b) + %d)", "(a < %d) ? b : c := c + %d", "root(abs(%d)) * gcd(abs(a), %d)",
        "-%d + ~%d ^ a << 3 | b & 255", "b := bits(a) + %d / (%d - c)", "c := (a >> 2) - min(b, c * %d) + %d", "1 + 2 * %d - (%d / 3)",
        "d := !a == (b != %d) ? e := e + 1 : f >= %d", "z := a <= b ? (b > c ? %d : 3 * 4) : %d + (1 << 4)",
    };
    ref room = heap_alloc(h, ROOM);
    if (room == 0) return NO_MEMORY;
    text out = text_in(heap_at(h, room), ROOM);
    /* The patterns have two numbers each. */
    if (s->seed & 0x40000000) text_put(&out, '(');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    text_format(&out, patterns[s->seed % 10], (int)(s->seed >> 8 & 1023), (int)(s->amount & 511));
#pragma GCC diagnostic pop
    if (s->seed & 0x40000000) text_puts(&out, ") + 5 * 7");
    ref code = expression_compile(h, out.at);
    uint32_t sum = 1;
    if (code != 0) {
        int32_t value = 0, optimised = 0;
        int32_t variables[VARIABLES];
        memcpy(variables, w->variables, sizeof variables);
        bool has_value = expression_run(h, code, variables, &value);
        uint32_t folded = expression_optimise(h, code);
        text list = text_in(out.at, ROOM);
        expression_list(h, code, &list);
        sum = murmur3(list.at, length_in(&list), folded);
        bool has_same = expression_run(h, code, w->variables, &optimised) == has_value && (!has_value || value == optimised);
        w->broken += !has_same;
        sum = rotl(sum, 8) + (uint32_t)value + has_same;
        heap_free(h, code);
    }
    heap_free(h, room);
    return sum;
}

static uint32_t match_names(world *w, heap *h, const step *s) {
    static const char *const patterns[6] = {"*ba*co*", "?i*", "[c-g]?[hj]*", "*[^a-m]", "**te", "di??"};
    const names *t = (const names *)w->containers[CONTAINERS - 1];
    uint32_t sum = s->seed, count = 0;
    for (uint32_t i = 0; i < 1u + s->amount % 3; i++) count += names_match(h, t, patterns[(s->seed + i) % 6], &sum);
    return sum + count;
}

const operation_kind text_operations[5] = {
    {"format", format}, {"json", use_json}, {"search", search}, {"evaluate", evaluate}, {"match", match_names},
};
