/* FPsPIN's host library for spind. A program connects to spind, installs handlers for the packets that its rulesets match, answers
 * their requests and reads their counters. It also sends messages by SLMP.
 *
 * README.md of this library lists the differences from FPsPIN. Functions that fail print the reason to standard error. */
#ifndef FPSPIN_FPSPIN_H
#define FPSPIN_FPSPIN_H

#include <arpa/inet.h>
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The machine. */

#define NUM_CLUSTERS 2
/* HPUs of the machine. Each has a page of host memory for its requests. */
#define NUM_HPUS 16
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
/* End of the NIC memory that images and contexts use. */
#define L2_END 0x1c100000UL
/* Number of pages of host memory that suffices for all HPUs. */
#define FPSPIN_HOSTDMA_PAGES_DEFAULT 16
/* Bits of the bus to host memory, and offset of the payload in an HPU's page. */
#define DMA_BUS_WIDTH 512
#define DMA_ALIGN (DMA_BUS_WIDTH / 8)
/* Number of counters of an image. */
#define MAX_COUNTERS 16

/* Address in NIC memory. */
typedef uint32_t fpspin_addr_t;

/* Headers of packets, as they lie in memory; fields are in network order. */

typedef struct mac_addr {
    uint8_t data[6];
} __attribute__((packed)) mac_addr_t;

typedef struct eth_hdr {
    mac_addr_t dest;
    mac_addr_t src;
    uint16_t length; /* or EtherType */
} __attribute__((packed)) eth_hdr_t;

typedef struct ip_hdr {
    uint8_t ihl : 4; /* length of this header in words: the lower half of the first byte */
    uint8_t version : 4;
    uint8_t tos;
    uint16_t length; /* of the packet, with this header */
    uint16_t identification;
    uint16_t offset; /* flags and fragment offset */
    uint8_t ttl;
    uint8_t protocol;
    uint16_t checksum;
    uint32_t source_id; /* addresses */
    uint32_t dest_id;
} __attribute__((packed)) ip_hdr_t;

typedef struct udp_hdr {
    uint16_t src_port;
    uint16_t dst_port;
    uint16_t length; /* of the datagram, with this header */
    uint16_t checksum;
} __attribute__((packed)) udp_hdr_t;

typedef struct slmp_hdr {
    uint16_t flags;
    uint32_t msg_id;
    uint32_t pkt_off; /* offset of the payload in its message */
} __attribute__((packed)) slmp_hdr_t;

typedef struct pkt_hdr {
    eth_hdr_t eth_hdr;
    ip_hdr_t ip_hdr;
    udp_hdr_t udp_hdr;
} __attribute__((packed)) pkt_hdr_t;

typedef struct slmp_pkt_hdr {
    eth_hdr_t eth_hdr;
    ip_hdr_t ip_hdr;
    udp_hdr_t udp_hdr;
    slmp_hdr_t slmp_hdr;
} __attribute__((packed)) slmp_pkt_hdr_t;

/* SLMP's flags, in the host's byte order: last packet of its message, acknowledgement requested, acknowledgement. */
#define MKEOM 0x8000
#define MKSYN 0x4000
#define MKACK 0x2000
#define EOM(flags) ((flags) & MKEOM)
#define SYN(flags) ((flags) & MKSYN)
#define ACK(flags) ((flags) & MKACK)

/* Matching. */

#define NUM_RULES_PER_RULESET 4
/* Maximum number of rulesets of a context. */
#define NUM_RULESETS 4

/* A rule. Holds if start <= (word & mask) <= end, where the word is bytes 4 * idx to 4 * idx + 3 of the frame as a big-endian number.
 * The type of an ICMP message, byte 34, is 8: {.idx = 8, .mask = 0xff00, .start = 0x0800, .end = 0x0800}. */
struct fpspin_rule {
    int idx;
    uint32_t mask;
    uint32_t start;
    uint32_t end;
};

enum { FPSPIN_MODE_AND = 0, FPSPIN_MODE_OR = 1 };

/* Rules 0 to 2, joined by `mode`, select the packets that match; rule 3 selects those that end their message. */
typedef struct fpspin_ruleset {
    struct fpspin_rule r[NUM_RULES_PER_RULESET];
    int mode;
} fpspin_ruleset_t;

#ifdef __cplusplus
#define FPSPIN_RULE(idx, mask, start, end) (fpspin_rule{(idx), (mask), (start), (end)})
#else
#define FPSPIN_RULE(idx, mask, start, end) ((struct fpspin_rule){(idx), (mask), (start), (end)})
#endif
/* Rules that never hold and always hold. */
#define FPSPIN_RULE_FALSE FPSPIN_RULE(0, 0, 1, 0)
#define FPSPIN_RULE_EMPTY FPSPIN_RULE(0, 0, 0, 0)
/* Rules for packets whose EtherType is IPv4, and for fields of IPv4 packets without options: protocol, UDP ports. The port is given in
 * the host's byte order. (FPsPIN's UDP_SPORT swaps its bytes and matches another port.) */
#define FPSPIN_RULE_IP FPSPIN_RULE(3, 0xffff0000u, 0x08000000u, 0x08000000u)
#define FPSPIN_RULE_IP_PROTO(n) FPSPIN_RULE(5, 0xffu, (uint32_t)(n), (uint32_t)(n))
#define FPSPIN_RULE_UDP_SPORT(n) FPSPIN_RULE(8, 0xffffu, (uint32_t)(n), (uint32_t)(n))
#define FPSPIN_RULE_UDP_DPORT(n) FPSPIN_RULE(9, 0xffff0000u, (uint32_t)(n) << 16, (uint32_t)(n) << 16)

/* Fill a ruleset. bypass: no packet. match: all packets, each one a message. udp: UDP over IPv4, without messages: each packet is a
 * task of the payload handler, and no other handler runs. slmp: SLMP, whose messages end with a packet that says so. */
void fpspin_ruleset_bypass(fpspin_ruleset_t *rs);
void fpspin_ruleset_match(fpspin_ruleset_t *rs);
void fpspin_ruleset_udp(fpspin_ruleset_t *rs);
void fpspin_ruleset_slmp(fpspin_ruleset_t *rs);

/* Contexts. */

/* Flag of a handler's request to its host program, and of the answer. */
typedef union fpspin_flag {
    __extension__ struct {
        uint8_t dma_id; /* changes with each request; the answer has the same id */
        uint32_t len;   /* bytes of payload */
        uint16_t hpu_id;
    } __attribute__((packed));
    uint64_t data;
} fpspin_flag_t;

typedef struct perf_counter {
    uint32_t sum;
    uint32_t count;
} fpspin_counter_t;

/* Start of an image's data in NIC memory: __host_data. */
struct host_data {
    uint64_t flag[NUM_HPUS];
    struct perf_counter counters[MAX_COUNTERS];
};

/* Area of NIC memory. */
struct mem_area {
    fpspin_addr_t addr;
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
    struct mem_area hh, ph, th; /* the handlers */
    struct mem_area handler_mem; /* from the end of the image's .l2_handler_data on; its size counts from the start of that section */
    void *app_data;              /* data of the program */
} fpspin_ctx_t;

/* Connects to the spind that listens at `dev` (/dev/pspin0: the default one), and maps `hostdma_pages` pages of host memory. It
 * installs the handlers of the image `img` for packets that match one of `num_rs` rulesets. Returns whether it succeeded. */
bool fpspin_init(fpspin_ctx_t *ctx, const char *dev, const char *img, int dest_ctx, const fpspin_ruleset_t *rs, int num_rs,
                 int hostdma_pages);
/* Removes the handlers and the host memory. */
void fpspin_exit(fpspin_ctx_t *ctx);

/* fpspin_load removes the image, if there is one, and installs another with `hostmem_size` bytes of new host memory. The library
 * chooses its address, so `hostmem_ptr` has no effect. fpspin_unload removes the image. */
void fpspin_load(fpspin_ctx_t *ctx, const char *elf, uint64_t hostmem_ptr, uint32_t hostmem_size);
void fpspin_unload(fpspin_ctx_t *ctx);

/* Change the packets that a context of this process receives. fpspin_prog_me replaces the rulesets of the latest context;
 * fpspin_set_me_ruleset those of the latest context with this ctx_id. */
void fpspin_prog_me(const fpspin_ruleset_t *rs, int num_rs);
void fpspin_set_me_ruleset(int ctx_id, const fpspin_ruleset_t *rs);
/* fpspin_load, fpspin_prog_me, fpspin_set_me_ruleset and fpspin_write_memory end the program if they fail (exit status 1). */

/* Path of a NIC's registers: stored, not used. */
void fpspin_set_regs_base(const char *base);
const char *fpspin_get_regs_base(void);

/* Takes the next request of an HPU. Returns its payload and fills in its flag; NULL if there is no new request. */
volatile void *fpspin_pop_req(fpspin_ctx_t *ctx, int hpu_id, fpspin_flag_t *flag);
/* Answers the last request taken: the handler gets `flag` with that request's dma_id and hpu_id. */
void fpspin_push_resp(fpspin_ctx_t *ctx, int hpu_id, fpspin_flag_t flag);

/* Counters that handlers add to by push_counter. get_counter returns sum and count; get_cycles sum / count, or 0 for count 0.
 * clear_counter sets both to zero. */
fpspin_counter_t fpspin_get_counter(fpspin_ctx_t *ctx, int id);
double fpspin_get_cycles(fpspin_ctx_t *ctx, int id);
void fpspin_clear_counter(fpspin_ctx_t *ctx, int id);
/* Returns sum / count of counter 0 as a whole number, or 0 for count 0. */
uint32_t fpspin_get_avg_cycles(fpspin_ctx_t *ctx);

/* Writes NIC memory: the image's data, handler memory, scratchpads. */
void fpspin_write_memory(fpspin_ctx_t *ctx, fpspin_addr_t addr, void *src, size_t size);

/* Prints bytes to standard output. */
void hexdump(const volatile void *data, size_t size);

/* SLMP: messages in UDP datagrams. */

#define SLMP_PORT 9330
#define SLMP_PAYLOAD_SIZE 1462

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
/* Returns 0. */
int slmp_close(slmp_sock_t *sock);

/* Layout that programs were compiled with. */

#ifdef __cplusplus
#define FPSPIN_ASSERT(holds) static_assert(holds, #holds)
#else
#define FPSPIN_ASSERT(holds) _Static_assert(holds, #holds)
#endif
FPSPIN_ASSERT(NUM_HPUS == 16 && PAGE_SIZE == 4096 && FPSPIN_HOSTDMA_PAGES_DEFAULT == 16 && DMA_ALIGN == 64);
FPSPIN_ASSERT(FPSPIN_MODE_AND == 0 && FPSPIN_MODE_OR == 1 && SLMP_PORT == 9330 && SLMP_PAYLOAD_SIZE == 1462);
FPSPIN_ASSERT(sizeof(pkt_hdr_t) == 42 && sizeof(slmp_pkt_hdr_t) == 52 && offsetof(slmp_pkt_hdr_t, slmp_hdr) == 42);
FPSPIN_ASSERT(sizeof(struct fpspin_rule) == 16 && offsetof(struct fpspin_rule, idx) == 0);
FPSPIN_ASSERT(offsetof(struct fpspin_rule, mask) == 4 && offsetof(struct fpspin_rule, start) == 8);
FPSPIN_ASSERT(offsetof(struct fpspin_rule, end) == 12);
FPSPIN_ASSERT(sizeof(fpspin_ruleset_t) == 68 && offsetof(fpspin_ruleset_t, mode) == 64);
FPSPIN_ASSERT(sizeof(fpspin_flag_t) == 8 && offsetof(fpspin_flag_t, len) == 1 && offsetof(fpspin_flag_t, hpu_id) == 5);
FPSPIN_ASSERT(offsetof(fpspin_flag_t, dma_id) == 0 && offsetof(fpspin_flag_t, data) == 0);
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
