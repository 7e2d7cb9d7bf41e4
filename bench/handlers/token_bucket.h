/* Token buckets by flow, for the handler and its native twin. */
#ifndef TOKEN_BUCKET_H
#define TOKEN_BUCKET_H

#include <spin_packet.h>

#define BUCKETS 1024u
/* Bytes of a packet's time at the beginning of its payload. */
#define TIME_BYTES 4u
/* Nanoseconds by which a packet may be older than its predecessor. Such a packet adds no tokens. */
#define MAX_REORDERING (1u << 28)

/* A flow: the fields are as in the packet. */
typedef struct flow {
    uint32_t source;
    uint32_t destination;
    uint32_t ports;
    uint32_t protocol;
} flow;

/* The bucket of the flow that used it last. */
typedef struct bucket {
    uint32_t lock;
    uint32_t time; /* nanoseconds modulo 2^32 */
    uint64_t tokens;
    flow owner;
} bucket;

/* Handler memory. A byte takes 2^20 tokens, so that a rate is in bytes per 2^20 ns, about a millisecond. */
typedef struct limiter {
    uint64_t burst; /* tokens of a full bucket; the application's, as the rate */
    uint32_t rate;  /* tokens per nanosecond */
    uint32_t passed;
    uint32_t dropped;
    uint32_t unused;
    bucket buckets[BUCKETS];
} limiter;

static inline flow flow_of(const spin_packet *p) {
    return (flow){spin_load32(p->ip + 12), spin_load32(p->ip + 16), spin_load32(p->l4), p->protocol};
}

static inline bool is_same_flow(const flow *left, const flow *right) {
    return left->source == right->source && left->destination == right->destination && left->ports == right->ports
        && left->protocol == right->protocol;
}

static inline uint32_t flow_hash(const flow *f) {
    uint32_t hash = f->source * 0x9e3779b1;
    hash = (hash ^ hash >> 15 ^ f->destination) * 0x85ebca6b;
    hash = (hash ^ hash >> 13 ^ f->ports) * 0xc2b2ae35;
    return hash ^ hash >> 16 ^ f->protocol;
}

/* Takes the tokens of a packet of `bytes` bytes. Returns false if there are too few. The bucket must be locked. */
static inline bool take_tokens(const limiter *l, bucket *b, const flow *f, uint32_t now, uint32_t bytes) {
    uint32_t elapsed = now - b->time;
    if (!is_same_flow(&b->owner, f)) {
        b->owner = *f;
        b->time = now;
        b->tokens = l->burst;
    } else if (elapsed < -MAX_REORDERING) {
        uint64_t tokens = b->tokens + (uint64_t)elapsed * l->rate;
        b->tokens = SPIN_MIN(tokens, l->burst);
        b->time = now;
    }
    uint64_t price = (uint64_t)bytes << 20;
    if (b->tokens < price) return false;
    b->tokens -= price;
    return true;
}

#endif
