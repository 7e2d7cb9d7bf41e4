#include "expression.h"

typedef enum operation {
    OP_END, OP_CONSTANT, OP_LOAD, OP_STORE, OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_REST, OP_AND, OP_OR, OP_XOR, OP_LEFT, OP_RIGHT,
    OP_LESS, OP_MORE, OP_AT_MOST, OP_AT_LEAST, OP_SAME, OP_OTHER, OP_NEGATE, OP_NOT, OP_FLIP, OP_JUMP, OP_JUMP_IF_0, OP_MINIMUM, OP_MAXIMUM,
    OP_ABSOLUTE, OP_ROOT, OP_GCD, OP_BITS, OP_COPY, OP_DROP, OPERATIONS
} operation;

typedef struct code {
    uint32_t length;
    uint8_t bytes[];
} code;

enum { LONGEST = 240, DEEPEST = 10 };

static const struct {
    const char *name;
    int8_t takes, gives;
} infos[OPERATIONS] = {
    {"end", 1, 0}, {"constant", 0, 1}, {"load", 0, 1}, {"store", 1, 1}, {"+", 2, 1}, {"-", 2, 1}, {"*", 2, 1}, {"/", 2, 1}, {"%", 2, 1},
    {"&", 2, 1}, {"|", 2, 1}, {"^", 2, 1}, {"<<", 2, 1}, {">>", 2, 1}, {"<", 2, 1}, {">", 2, 1}, {"<=", 2, 1}, {">=", 2, 1}, {"==", 2, 1},
    {"!=", 2, 1}, {"negate", 1, 1}, {"!", 1, 1}, {"~", 1, 1}, {"jump", 0, 0}, {"unless", 1, 0}, {"min", 2, 1}, {"max", 2, 1}, {"abs", 1, 1},
    {"root", 1, 1}, {"gcd", 2, 1}, {"bits", 1, 1}, {"copy", 1, 2}, {"drop", 1, 0},
};

/* Operators of two operands, the longer of those with one beginning first. */
static const struct {
    char text[3];
    uint8_t level;
    uint8_t op;
} operators[] = {
    {"<<", 6, OP_LEFT}, {">>", 6, OP_RIGHT}, {"<=", 5, OP_AT_MOST}, {">=", 5, OP_AT_LEAST}, {"==", 4, OP_SAME}, {"!=", 4, OP_OTHER},
    {"<", 5, OP_LESS}, {">", 5, OP_MORE}, {"+", 7, OP_ADD}, {"-", 7, OP_SUBTRACT}, {"*", 8, OP_MULTIPLY}, {"/", 8, OP_DIVIDE}, {"%", 8, OP_REST},
    {"&", 3, OP_AND}, {"^", 2, OP_XOR}, {"|", 1, OP_OR},
};

static const struct {
    char name[6];
    uint8_t op;
} functions[] = {{"min", OP_MINIMUM}, {"max", OP_MAXIMUM}, {"abs", OP_ABSOLUTE}, {"root", OP_ROOT}, {"gcd", OP_GCD}, {"bits", OP_BITS}};

typedef struct compiler {
    const char *s;
    code *out;
    uint32_t depth; /* of the machine's stack */
    bool failed;
} compiler;

static void emit(compiler *c, uint32_t byte) {
    if (c->out->length == LONGEST) c->failed = true;
    else c->out->bytes[c->out->length++] = (uint8_t)byte;
}

static void emit_op(compiler *c, operation op) {
    emit(c, op);
    c->depth += (uint32_t)(infos[op].gives - infos[op].takes);
    if (c->depth >= STACK) c->failed = true;
}

static void emit_word(compiler *c, uint32_t word) {
    for (int i = 0; i < 4; i++) emit(c, word >> 8 * i & 255);
}

static bool accept(compiler *c, const char *token) {
    while (*c->s == ' ') c->s++;
    uint32_t length = 0;
    for (; token[length] != 0; length++)
        if (c->s[length] != token[length]) return false;
    c->s += length;
    return true;
}

static void require(compiler *c, const char *token) {
    if (!accept(c, token)) c->failed = true;
}

/* A jump whose distance is not known yet. */
static uint32_t emit_jump(compiler *c, operation op) {
    emit_op(c, op);
    emit(c, 0);
    return c->out->length;
}

static void land(compiler *c, uint32_t from) {
    if (!c->failed) c->out->bytes[from - 1] = (uint8_t)(c->out->length - from);
}

static void compile(compiler *c, uint32_t level, uint32_t deep);

static void compile_choice(compiler *c, uint32_t deep) {
    compile(c, 1, deep);
    if (!accept(c, "?")) return;
    uint32_t otherwise = emit_jump(c, OP_JUMP_IF_0);
    compile_choice(c, deep + 1);
    uint32_t end = emit_jump(c, OP_JUMP);
    c->depth--;
    require(c, ":");
    land(c, otherwise);
    compile_choice(c, deep + 1);
    land(c, end);
}

static void compile_function(compiler *c, uint32_t deep) {
    for (uint32_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!accept(c, functions[i].name)) continue;
        require(c, "(");
        compile_choice(c, deep + 1);
        for (int more = 1; more < infos[functions[i].op].takes; more++) {
            require(c, ",");
            compile_choice(c, deep + 1);
        }
        require(c, ")");
        emit_op(c, functions[i].op);
        return;
    }
    c->failed = true;
}

static void compile_primary(compiler *c, uint32_t deep) {
    uint64_t number;
    if (deep > DEEPEST || c->failed) {
        c->failed = true;
        return;
    }
    if (accept(c, "(")) {
        compile_choice(c, deep + 1);
        require(c, ")");
    } else if (accept(c, "-")) {
        compile_primary(c, deep + 1);
        emit_op(c, OP_NEGATE);
    } else if (accept(c, "!")) {
        compile_primary(c, deep + 1);
        emit_op(c, OP_NOT);
    } else if (accept(c, "~")) {
        compile_primary(c, deep + 1);
        emit_op(c, OP_FLIP);
    } else if (c->s[0] >= 'a' && c->s[0] <= 'z' && !(c->s[1] >= 'a' && c->s[1] <= 'z')) {
        uint32_t variable = (uint32_t)(*c->s++ - 'a');
        bool is_store = accept(c, ":=");
        if (is_store) compile_choice(c, deep + 1);
        emit_op(c, is_store ? OP_STORE : OP_LOAD);
        emit(c, variable);
    } else if (c->s[0] >= 'a' && c->s[0] <= 'z') {
        compile_function(c, deep);
    } else {
        uint32_t length = parse_unsigned(c->s, 0, &number);
        c->failed |= length == 0;
        c->s += length;
        emit_op(c, OP_CONSTANT);
        emit_word(c, (uint32_t)number);
    }
}

static void compile(compiler *c, uint32_t level, uint32_t deep) {
    compile_primary(c, deep);
    for (uint32_t i = 0; !c->failed && i < sizeof operators / sizeof operators[0]; i++) {
        if (operators[i].level < level || !accept(c, operators[i].text)) continue;
        compile(c, operators[i].level + 1u, deep + 1);
        emit_op(c, (operation)operators[i].op);
        i = ~0u;
    }
}

ref expression_compile(heap *h, const char *s) {
    ref made = heap_zalloc(h, 1, sizeof(code) + LONGEST);
    if (made == 0) return 0;
    compiler c = {s, heap_at(h, made), 0, false};
    compile_choice(&c, 0);
    emit_op(&c, OP_END);
    accept(&c, "");
    if (c.failed || *c.s != 0) {
        heap_free(h, made);
        return 0;
    }
    return heap_realloc(h, made, (uint32_t)sizeof(code) + c.out->length);
}

static uint32_t operand_bytes(uint32_t op) {
    switch (op) {
        case OP_CONSTANT: return 4;
        case OP_LOAD: case OP_STORE: case OP_JUMP: case OP_JUMP_IF_0: return 1;
        default: return 0;
    }
}

static uint32_t root_of(uint32_t value) {
    uint32_t root = 0;
    for (uint32_t bit = 1u << 15; bit != 0; bit >>= 1)
        if ((root | bit) * (root | bit) <= value) root |= bit;
    return root;
}

static uint32_t gcd(uint32_t a, uint32_t b) {
    while (b != 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool divide(int32_t *a, int32_t b, bool rest) {
    if (b == 0) return false;
    if (b == -1) *a = rest ? 0 : (int32_t)-(uint32_t)*a;
    else *a = rest ? *a % b : *a / b;
    return true;
}

/* `a` becomes the result. */
static bool apply(operation op, int32_t *a, int32_t b) {
    uint32_t x = (uint32_t)*a, y = (uint32_t)b;
    switch (op) {
        case OP_ADD: x += y; break;
        case OP_SUBTRACT: x -= y; break;
        case OP_MULTIPLY: x *= y; break;
        case OP_DIVIDE: return divide(a, b, false);
        case OP_REST: return divide(a, b, true);
        case OP_AND: x &= y; break;
        case OP_OR: x |= y; break;
        case OP_XOR: x ^= y; break;
        case OP_LEFT: x <<= y & 31; break;
        case OP_RIGHT: x = (uint32_t)(*a >> (y & 31)); break;
        case OP_LESS: x = *a < b; break;
        case OP_MORE: x = *a > b; break;
        case OP_AT_MOST: x = *a <= b; break;
        case OP_AT_LEAST: x = *a >= b; break;
        case OP_SAME: x = *a == b; break;
        case OP_OTHER: x = *a != b; break;
        case OP_NEGATE: x = -x; break;
        case OP_NOT: x = x == 0; break;
        case OP_FLIP: x = ~x; break;
        case OP_MINIMUM: x = *a < b ? x : y; break;
        case OP_MAXIMUM: x = *a > b ? x : y; break;
        case OP_ABSOLUTE: x = *a < 0 ? -x : x; break;
        case OP_ROOT: x = root_of(x); break;
        case OP_GCD: x = gcd(x, y); break;
        case OP_BITS: x = (uint32_t)__builtin_popcount(x); break;
        default: return false;
    }
    *a = (int32_t)x;
    return true;
}

static uint32_t word_at(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

bool expression_run(heap *h, ref made, int32_t variables[VARIABLES], int32_t *value) {
    const code *c = heap_at(h, made);
    int32_t stack[STACK + 1] = {0};
    uint32_t top = 0;
    for (uint32_t at = 0, steps = 0; at < c->length && steps < 1000; steps++) {
        operation op = (operation)c->bytes[at++];
        const uint8_t *operand = c->bytes + at;
        at += operand_bytes(op);
        switch (op) {
            case OP_END: *value = stack[top - 1]; return true;
            case OP_CONSTANT: stack[top++] = (int32_t)word_at(operand); break;
            case OP_LOAD: stack[top++] = variables[*operand]; break;
            case OP_STORE: variables[*operand] = stack[top - 1]; break;
            case OP_JUMP: at += *operand; break;
            case OP_JUMP_IF_0: if (stack[--top] == 0) at += *operand; break;
            case OP_COPY: stack[top] = stack[top - 1]; top++; break;
            case OP_DROP: top--; break;
            case OP_NEGATE: case OP_NOT: case OP_FLIP: case OP_ABSOLUTE: case OP_ROOT: case OP_BITS:
                apply(op, &stack[top - 1], 0);
                break;
            default:
                top--;
                if (!apply(op, &stack[top - 1], stack[top])) return false;
        }
    }
    return false;
}

static bool is_target(const code *c, uint32_t target) {
    for (uint32_t at = 0; at < c->length; at += 1 + operand_bytes(c->bytes[at])) {
        uint8_t op = c->bytes[at];
        if ((op == OP_JUMP || op == OP_JUMP_IF_0) && at + 2 + c->bytes[at + 1] == target) return true;
    }
    return false;
}

/* Removes bytes, and shortens the jumps across them. */
static void cut(code *c, uint32_t from, uint32_t to) {
    for (uint32_t at = 0; at < from; at += 1 + operand_bytes(c->bytes[at])) {
        uint8_t op = c->bytes[at];
        if ((op == OP_JUMP || op == OP_JUMP_IF_0) && at + 2 + c->bytes[at + 1] >= to) c->bytes[at + 1] -= (uint8_t)(to - from);
    }
    memmove(c->bytes + from, c->bytes + to, c->length - to);
    c->length -= to - from;
}

static void set_constant(code *c, uint32_t at, int32_t value) {
    c->bytes[at] = OP_CONSTANT;
    for (int i = 0; i < 4; i++) c->bytes[at + 1 + (uint32_t)i] = (uint8_t)((uint32_t)value >> 8 * i);
}

/* Folds an operation of constants at `at`, if there is one. */
static bool fold(code *c, uint32_t at) {
    if (c->bytes[at] != OP_CONSTANT) return false;
    uint32_t second = at + 5;
    operation op = (operation)c->bytes[second];
    int32_t a = (int32_t)word_at(c->bytes + at + 1);
    if (is_target(c, second)) return false;
    if (infos[op].takes == 1 && infos[op].gives == 1 && op != OP_STORE) {
        if (!apply(op, &a, 0)) return false;
        set_constant(c, at, a);
        cut(c, second, second + 1);
        return true;
    }
    if (op != OP_CONSTANT || is_target(c, second + 5)) return false;
    op = (operation)c->bytes[second + 5];
    if (infos[op].takes != 2 || !apply(op, &a, (int32_t)word_at(c->bytes + second + 1))) return false;
    set_constant(c, at, a);
    cut(c, second, second + 6);
    return true;
}

uint32_t expression_optimise(heap *h, ref made) {
    code *c = heap_at(h, made);
    uint32_t removed = 0;
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t at = 0; at < c->length; at += 1 + operand_bytes(c->bytes[at])) {
            if (!fold(c, at)) continue;
            removed++;
            again = true;
        }
    }
    return removed;
}

void expression_list(heap *h, ref made, text *out) {
    const code *c = heap_at(h, made);
    for (uint32_t at = 0; at < c->length; at += 1 + operand_bytes(c->bytes[at])) {
        uint8_t op = c->bytes[at];
        text_format(out, "%3u: %-9s", at, infos[op].name);
        if (op == OP_CONSTANT) text_format(out, "%d", (int32_t)word_at(c->bytes + at + 1));
        else if (op == OP_LOAD || op == OP_STORE) text_format(out, "%c", 'a' + c->bytes[at + 1]);
        else if (op == OP_JUMP || op == OP_JUMP_IF_0) text_format(out, "%u", at + 2 + c->bytes[at + 1]);
        text_put(out, '\n');
    }
}
