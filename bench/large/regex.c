#include "regex.h"

typedef enum regex_op { RE_CHAR, RE_ANY, RE_SET, RE_SPLIT, RE_JUMP, RE_SAVE, RE_START, RE_END, RE_MATCH } regex_op;

/* An instruction. Sets of bytes are words of bits that follow the program. */
typedef struct instruction {
    uint8_t op;
    uint8_t argument; /* character, set or group */
    uint16_t first, second; /* targets; the first is tried first */
} instruction;

enum { LONGEST = 96, SETS = 8, STEPS = 4000, STACK = 64 };

typedef struct program {
    uint32_t length, sets, groups;
    instruction code[LONGEST];
    uint32_t bits[SETS][8];
} program;

typedef struct compiler {
    const char *s;
    program *p;
    uint32_t depth;
    bool failed;
} compiler;

static uint32_t emit(compiler *c, regex_op op, uint32_t argument) {
    if (c->p->length == LONGEST) {
        c->failed = true;
        return 0;
    }
    c->p->code[c->p->length] = (instruction){(uint8_t)op, (uint8_t)argument, 0, 0};
    return c->p->length++;
}

/* Makes room for an instruction before those from `at` on, and moves their targets. */
static void open_at(compiler *c, uint32_t at, regex_op op) {
    emit(c, op, 0);
    if (c->failed) return;
    for (uint32_t i = c->p->length - 1; i > at; i--) {
        c->p->code[i] = c->p->code[i - 1];
        if (c->p->code[i].first >= at) c->p->code[i].first++;
        if (c->p->code[i].second >= at) c->p->code[i].second++;
    }
    c->p->code[at] = (instruction){(uint8_t)op, 0, 0, 0};
}

static void add_range(uint32_t bits[8], uint32_t low, uint32_t high) {
    for (uint32_t c = low; c <= high; c++) bits[c / 32] |= 1u << (c % 32);
}

static bool add_class(uint32_t bits[8], char c) {
    uint32_t own[8] = {0};
    switch (c | 32) {
        case 'd': add_range(own, '0', '9'); break;
        case 'w':
            add_range(own, '0', '9');
            add_range(own, 'a', 'z');
            add_range(own, 'A', 'Z');
            add_range(own, '_', '_');
            break;
        case 's':
            add_range(own, ' ', ' ');
            add_range(own, '\t', '\r');
            break;
        default: return false;
    }
    for (int i = 0; i < 8; i++) bits[i] |= c & 32 ? own[i] : ~own[i];
    return true;
}

static uint32_t *new_set(compiler *c) {
    if (c->p->sets == SETS) {
        c->failed = true;
        return c->p->bits[0];
    }
    return c->p->bits[c->p->sets++];
}

static void compile_set(compiler *c) {
    uint32_t set = c->p->sets, *bits = new_set(c);
    bool negated = *c->s == '^';
    if (negated) c->s++;
    do {
        if (*c->s == 0) {
            c->failed = true;
            return;
        }
        if (*c->s == '\\' && c->s[1] != 0) {
            if (!add_class(bits, c->s[1])) add_range(bits, (uint8_t)c->s[1], (uint8_t)c->s[1]);
            c->s += 2;
            continue;
        }
        uint8_t low = (uint8_t)*c->s++, high = low;
        if (c->s[0] == '-' && c->s[1] != 0 && c->s[1] != ']') {
            high = (uint8_t)c->s[1];
            c->s += 2;
        }
        if (low <= high) add_range(bits, low, high);
    } while (*c->s != ']');
    c->s++;
    for (int i = 0; i < 8 && negated; i++) bits[i] = ~bits[i];
    emit(c, RE_SET, set);
}

static void compile_alternatives(compiler *c);

static void compile_atom(compiler *c) {
    char first = *c->s++;
    switch (first) {
        case '.': emit(c, RE_ANY, 0); return;
        case '^': emit(c, RE_START, 0); return;
        case '$': emit(c, RE_END, 0); return;
        case '[': compile_set(c); return;
        case '(': {
            uint32_t group = ++c->p->groups;
            if (group >= GROUPS || ++c->depth > 6) {
                c->failed = true;
                return;
            }
            emit(c, RE_SAVE, 2 * group);
            compile_alternatives(c);
            c->depth--;
            c->failed |= *c->s != ')';
            if (!c->failed) c->s++;
            emit(c, RE_SAVE, 2 * group + 1);
            return;
        }
        case '\\': {
            uint32_t bits[8] = {0};
            if (*c->s == 0) c->failed = true;
            else if (add_class(bits, *c->s)) {
                uint32_t set = c->p->sets;
                memcpy(new_set(c), bits, sizeof bits);
                emit(c, RE_SET, set);
                c->s++;
            } else emit(c, RE_CHAR, (uint8_t)*c->s++);
            return;
        }
        case '*': case '+': case '?': c->failed = true; return;
        default: emit(c, RE_CHAR, (uint8_t)first);
    }
}

static void set_targets(instruction *i, uint32_t more, uint32_t out, bool lazy) {
    i->first = (uint16_t)(lazy ? out : more);
    i->second = (uint16_t)(lazy ? more : out);
}

static void compile_repeated(compiler *c) {
    uint32_t start = c->p->length;
    compile_atom(c);
    while (!c->failed && (*c->s == '*' || *c->s == '+' || *c->s == '?')) {
        char repeat = *c->s++;
        bool lazy = *c->s == '?';
        if (lazy) c->s++;
        if (repeat == '+') {
            uint32_t split = emit(c, RE_SPLIT, 0);
            set_targets(&c->p->code[split], start, split + 1, lazy);
            continue;
        }
        open_at(c, start, RE_SPLIT);
        if (repeat == '*') c->p->code[emit(c, RE_JUMP, 0)].first = (uint16_t)start;
        set_targets(&c->p->code[start], start + 1, c->p->length, lazy);
    }
}

static void compile_alternatives(compiler *c) {
    uint32_t start = c->p->length;
    while (!c->failed && *c->s != 0 && *c->s != '|' && *c->s != ')') compile_repeated(c);
    if (c->failed || *c->s != '|') return;
    c->s++;
    open_at(c, start, RE_SPLIT);
    uint32_t jump = emit(c, RE_JUMP, 0);
    set_targets(&c->p->code[start], start + 1, c->p->length, false);
    compile_alternatives(c);
    c->p->code[jump].first = (uint16_t)c->p->length;
}

ref regex_compile(heap *h, const char *pattern) {
    ref made = heap_zalloc(h, 1, sizeof(program));
    if (made == 0) return 0;
    compiler c = {pattern, heap_at(h, made), 0, false};
    compile_alternatives(&c);
    emit(&c, RE_MATCH, 0);
    if (c.failed || *c.s != 0) {
        heap_free(h, made);
        return 0;
    }
    return made;
}

/* Where to continue when a way fails: the place, or a group's former bound. */
typedef struct way {
    uint16_t pc, at;
    uint16_t group, bound; /* group 0xffff: a place */
} way;

static bool match_at(const program *p, const char *text, uint32_t length, uint32_t start, uint32_t *groups, uint32_t *steps, way *stack) {
    uint32_t top = 0, pc = 0, at = start;
    for (;;) {
        const instruction *i = &p->code[pc++];
        bool matches = true;
        if (++*steps > STEPS) return false;
        switch ((regex_op)i->op) {
            case RE_CHAR: matches = at < length && (uint8_t)text[at] == i->argument; at++; break;
            case RE_ANY: matches = at < length; at++; break;
            case RE_SET: {
                uint8_t c = (uint8_t)text[at < length ? at : 0];
                matches = at < length && (p->bits[i->argument][c / 32] >> (c % 32) & 1);
                at++;
                break;
            }
            case RE_SPLIT:
                if (top == STACK) return false;
                stack[top++] = (way){i->second, (uint16_t)at, 0xffff, 0};
                pc = i->first;
                break;
            case RE_JUMP: pc = i->first; break;
            case RE_SAVE:
                if (top == STACK) return false;
                stack[top++] = (way){0, 0, i->argument, (uint16_t)groups[i->argument]};
                groups[i->argument] = at;
                break;
            case RE_START: matches = at == 0; break;
            case RE_END: matches = at == length; break;
            case RE_MATCH:
                groups[0] = start;
                groups[1] = at;
                return true;
        }
        if (matches) continue;
        while (top > 0 && stack[top - 1].group != 0xffff) {
            groups[stack[top - 1].group] = stack[top - 1].bound;
            top--;
        }
        if (top == 0) return false;
        pc = stack[--top].pc;
        at = stack[top].at;
    }
}

bool regex_search(heap *h, ref made, const char *text, uint32_t length, uint32_t groups[2 * GROUPS]) {
    const program *p = heap_at(h, made);
    uint32_t steps = 0;
    ref stack = heap_alloc(h, STACK * sizeof(way));
    if (stack == 0) return false;
    bool found = false;
    for (uint32_t start = 0; start <= length && !found && steps <= STEPS; start++) {
        memset(groups, 0, 2 * GROUPS * sizeof *groups);
        found = match_at(p, text, length, start, groups, &steps, heap_at(h, stack));
    }
    heap_free(h, stack);
    return found;
}
