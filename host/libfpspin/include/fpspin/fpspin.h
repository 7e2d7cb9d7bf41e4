/* FPsPIN's host library for spind. A program connects to spind, installs handlers for the packets that its rulesets match, answers
 * their requests and reads their counters. It also sends messages by SLMP.
 *
 * README.md of this library lists the differences from FPsPIN. Functions that fail print the reason to standard error. */
#ifndef FPSPIN_FPSPIN_H
#define FPSPIN_FPSPIN_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* HPUs of the machine. Each has a page of host memory for its requests. */
#define NUM_HPUS 16
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
/* Number of pages of host memory that suffices for all HPUs. */
#define FPSPIN_HOSTDMA_PAGES_DEFAULT 16
/* Offset of the payload in an HPU's page. */
#ifndef DMA_ALIGN
#define DMA_ALIGN 64
#endif
/* Number of counters of an image. */
#define FPSPIN_NUM_COUNTERS 16
/* Maximum number of rulesets of a context. */
#define FPSPIN_NUM_RULESETS 4

/* Matching. */

/* A rule. Holds if start <= word[idx] & mask <= end; a word is four bytes of the frame, read little-endian. */
struct fpspin_rule {
    int idx;
    uint32_t mask;
    uint32_t start;
    uint32_t end;
};

enum fpspin_mode { FPSPIN_MODE_AND = 0, FPSPIN_MODE_OR = 1 };

/* Rules 0 to 2, joined by `mode`, select the packets that match; rule 3 selects those that end their message. */
typedef struct fpspin_ruleset {
    struct fpspin_rule r[4];
    enum fpspin_mode mode;
} fpspin_ruleset_t;

#ifdef __cplusplus
#define FPSPIN_RULE(idx, mask, start, end) (fpspin_rule{(idx), (mask), (start), (end)})
#else
#define FPSPIN_RULE(idx, mask, start, end) ((struct fpspin_rule){(idx), (mask), (start), (end)})
#endif
/* Rules that never hold and always hold. */
#define FPSPIN_RULE_FALSE FPSPIN_RULE(0, 0, 1, 0)
#define FPSPIN_RULE_EMPTY FPSPIN_RULE(0, 0, 0, 0)
/* Rules for packets whose EtherType is IPv4, and for fields of IPv4 packets without options: protocol, UDP ports. */
#define FPSPIN_RULE_IP FPSPIN_RULE(3, htonl(0xffff0000u), htonl(0x08000000u), htonl(0x08000000u))
#define FPSPIN_RULE_IP_PROTO(n) FPSPIN_RULE(5, htonl(0xffu), htonl((uint32_t)(n)), htonl((uint32_t)(n)))
#define FPSPIN_RULE_UDP_SPORT(n) FPSPIN_RULE(8, htonl(0xffffu), htonl((uint32_t)(n)), htonl((uint32_t)(n)))
#define FPSPIN_RULE_UDP_DPORT(n) FPSPIN_RULE(9, htonl(0xffff0000u), htonl((uint32_t)(n) << 16), htonl((uint32_t)(n) << 16))

/* Fill a ruleset. bypass: no packet. match: all packets. udp: UDP over IPv4. slmp: SLMP, whose messages end with a packet that says
 * so. With the first three, each packet is a message. */
void fpspin_ruleset_bypass(fpspin_ruleset_t *rs);
void fpspin_ruleset_match(fpspin_ruleset_t *rs);
void fpspin_ruleset_udp(fpspin_ruleset_t *rs);
void fpspin_ruleset_slmp(fpspin_ruleset_t *rs);

/* Contexts. */

/* Flag of a handler's request to its host program, and of the answer. */
typedef struct fpspin_flag {
    uint8_t dma_id; /* changes with each request; the answer has the same id */
    uint32_t len;   /* bytes of payload */
    uint16_t hpu_id;
} __attribute__((packed)) fpspin_flag_t;

typedef struct fpspin_counter {
    uint32_t sum;
    uint32_t count;
} fpspin_counter_t;

/* Start of an image's data in NIC memory: __host_data. */
struct host_data {
    uint64_t flag[NUM_HPUS];
    fpspin_counter_t counters[FPSPIN_NUM_COUNTERS];
};

/* Area of NIC memory. */
struct mem_area {
    uint32_t addr;
    uint32_t size;
};

typedef struct fpspin_ctx {
    int ctx_id;                /* dest_ctx of fpspin_init */
    int fd;                    /* the connection to spind */
    void *cpu_addr;            /* host memory: one page per HPU; the program owns the rest */
    size_t mmap_len;           /* bytes of host memory */
    uint8_t dma_idx[NUM_HPUS]; /* by HPU: dma_id of the last request taken */
    union {
        struct host_data *pspin_host_data; /* address in NIC memory, not for dereferencing */
        uint64_t host_data_ptr;
    };
    struct mem_area hh, ph, th, handler_mem; /* the handlers, and their shared memory */
    void *app_data;                          /* data of the program */
} fpspin_ctx_t;

/* Connects to the spind that listens at `dev` (/dev/pspin0: the default one), and maps `hostdma_pages` pages of host memory. It
 * installs the handlers of the image `img` for packets that match one of `num_rs` rulesets. */
bool fpspin_init(fpspin_ctx_t *ctx, const char *dev, const char *img, int dest_ctx, const fpspin_ruleset_t *rs, int num_rs,
                 int hostdma_pages);
/* Removes the handlers and the host memory. */
void fpspin_exit(fpspin_ctx_t *ctx);

/* fpspin_load removes the image, if there is one, and installs another with new host memory. fpspin_unload removes the image. */
bool fpspin_load(fpspin_ctx_t *ctx, const char *img, int hostdma_pages);
void fpspin_unload(fpspin_ctx_t *ctx);

/* Change the packets that the context receives. fpspin_prog_me replaces all rulesets, fpspin_set_me_ruleset only ruleset `id`. */
bool fpspin_prog_me(fpspin_ctx_t *ctx, const fpspin_ruleset_t *rs, int num_rs);
bool fpspin_set_me_ruleset(fpspin_ctx_t *ctx, int id, const fpspin_ruleset_t *rs);

/* Address of a NIC's registers: stored, not used. */
void fpspin_set_regs_base(volatile void *base);
volatile void *fpspin_get_regs_base(void);

/* Takes the next request of an HPU. Returns its payload and fills in its flag; NULL if there is no new request. */
volatile void *fpspin_pop_req(fpspin_ctx_t *ctx, int hpu_id, fpspin_flag_t *flag);
/* Answers the last request taken: the handler gets `flag` with that request's dma_id and hpu_id. */
void fpspin_push_resp(fpspin_ctx_t *ctx, int hpu_id, fpspin_flag_t flag);

/* Counters that handlers add to by push_counter. get_counter returns sum and count; get_cycles sum / count, or 0 for count 0.
 * clear_counter sets both to zero. */
fpspin_counter_t fpspin_get_counter(fpspin_ctx_t *ctx, int id);
double fpspin_get_cycles(fpspin_ctx_t *ctx, int id);
void fpspin_clear_counter(fpspin_ctx_t *ctx, int id);
/* Returns fpspin_get_cycles of counter 0. */
double fpspin_get_avg_cycles(fpspin_ctx_t *ctx);

/* Writes NIC memory: the image's data, handler memory, scratchpads. */
bool fpspin_write_memory(fpspin_ctx_t *ctx, uint32_t addr, const void *src, size_t size);

/* Prints bytes to standard output. */
void hexdump(const volatile void *data, size_t size);

/* SLMP: messages in UDP datagrams. */

#define SLMP_PORT 9330
#define SLMP_MAX_PAYLOAD 1462
#define SLMP_EOM 0x8000 /* last packet of its message */
#define SLMP_SYN 0x4000 /* acknowledgement requested */
#define SLMP_ACK 0x2000 /* acknowledgement */

typedef struct slmp_sock {
    bool parallel;   /* more than one thread */
    int wnd_sz;      /* maximum number of unacknowledged packets; 0: wait for the first acknowledgement only */
    int align;       /* payloads but the last are multiples of this number of bytes; 0 and 1: any length */
    int fc_us;       /* minimum number of microseconds between two packets of a thread */
    int num_threads; /* number of sending threads */
} slmp_sock_t;

/* Returns 0 on success. */
int slmp_socket(slmp_sock_t *sock, int wnd_sz, int align, int fc_us, int num_threads);
/* Sends a message. Returns 0 when it is sent and, with a window, acknowledged; another value if not. Nothing is retransmitted. */
int slmp_sendmsg(slmp_sock_t *sock, in_addr_t server, int msgid, void *buf, size_t sz);
int slmp_close(slmp_sock_t *sock);

/* Layout that programs were compiled with. */

#ifdef __cplusplus
#define FPSPIN_ASSERT(holds) static_assert(holds, #holds)
#else
#define FPSPIN_ASSERT(holds) _Static_assert(holds, #holds)
#endif
FPSPIN_ASSERT(NUM_HPUS == 16 && PAGE_SIZE == 4096 && FPSPIN_HOSTDMA_PAGES_DEFAULT == 16 && DMA_ALIGN == 64);
FPSPIN_ASSERT(FPSPIN_MODE_AND == 0 && FPSPIN_MODE_OR == 1 && SLMP_PORT == 9330 && SLMP_MAX_PAYLOAD == 1462);
FPSPIN_ASSERT(SLMP_EOM == 0x8000 && SLMP_SYN == 0x4000 && SLMP_ACK == 0x2000);
FPSPIN_ASSERT(sizeof(struct fpspin_rule) == 16 && offsetof(struct fpspin_rule, idx) == 0);
FPSPIN_ASSERT(offsetof(struct fpspin_rule, mask) == 4 && offsetof(struct fpspin_rule, start) == 8);
FPSPIN_ASSERT(offsetof(struct fpspin_rule, end) == 12);
FPSPIN_ASSERT(sizeof(fpspin_ruleset_t) == 68 && offsetof(fpspin_ruleset_t, mode) == 64);
FPSPIN_ASSERT(sizeof(fpspin_flag_t) == 7 && offsetof(fpspin_flag_t, len) == 1 && offsetof(fpspin_flag_t, hpu_id) == 5);
FPSPIN_ASSERT(sizeof(fpspin_counter_t) == 8 && offsetof(fpspin_counter_t, count) == 4);
FPSPIN_ASSERT(sizeof(struct host_data) == 256 && offsetof(struct host_data, counters) == 128);
FPSPIN_ASSERT(sizeof(struct mem_area) == 8 && offsetof(struct mem_area, size) == 4);
FPSPIN_ASSERT(sizeof(fpspin_ctx_t) == 88 && offsetof(fpspin_ctx_t, ctx_id) == 0 && offsetof(fpspin_ctx_t, fd) == 4);
FPSPIN_ASSERT(offsetof(fpspin_ctx_t, cpu_addr) == 8 && offsetof(fpspin_ctx_t, mmap_len) == 16);
FPSPIN_ASSERT(offsetof(fpspin_ctx_t, dma_idx) == 24 && offsetof(fpspin_ctx_t, pspin_host_data) == 40);
FPSPIN_ASSERT(offsetof(fpspin_ctx_t, host_data_ptr) == 40 && offsetof(fpspin_ctx_t, hh) == 48);
FPSPIN_ASSERT(offsetof(fpspin_ctx_t, ph) == 56 && offsetof(fpspin_ctx_t, th) == 64);
FPSPIN_ASSERT(offsetof(fpspin_ctx_t, handler_mem) == 72 && offsetof(fpspin_ctx_t, app_data) == 80);
FPSPIN_ASSERT(sizeof(slmp_sock_t) == 20 && offsetof(slmp_sock_t, parallel) == 0 && offsetof(slmp_sock_t, wnd_sz) == 4);
FPSPIN_ASSERT(offsetof(slmp_sock_t, align) == 8 && offsetof(slmp_sock_t, fc_us) == 12);
FPSPIN_ASSERT(offsetof(slmp_sock_t, num_threads) == 16);

#ifdef __cplusplus
}
#endif

#endif
