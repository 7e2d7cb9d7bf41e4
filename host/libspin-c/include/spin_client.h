/* libspin for C and C++: connect to spind, install contexts, share memory with handlers, read events and counters.
 *
 * Functions return SPIN_OK or an error code, unless they say otherwise. After an error spin_last_error() has the reason; for
 * SPIN_E_REFUSED these are spind's words. A function that fails sets the place of a handle to NULL, and changes no other place.
 *
 * Texts are UTF-8 with a zero at the end, and are copied. Paths are bytes. Sizes are in bytes.
 *
 * Threads: a spin_client may be used by several threads at the same time; their requests take turns. spin_image, spin_context,
 * spin_stats and spin_capture do not change, and may be read by several threads. spin_options and spin_events may be used by one
 * thread at a time. No thread may use a handle while another one frees it. Freeing NULL has no effect. Handles do not depend on
 * each other: each may be freed first. */
#ifndef SPIN_CLIENT_H
#define SPIN_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Result codes. The numbers do not change; later versions may add some. */
enum spin_status {
    SPIN_OK = 0,
    SPIN_E_NULL = 1,       /* a pointer is NULL */
    SPIN_E_UTF8 = 2,       /* a text is not UTF-8 */
    SPIN_E_VALUE = 3,      /* a value is out of range, or not one of the valid words */
    SPIN_E_FILE = 4,       /* a file cannot be read */
    SPIN_E_CONNECT = 5,    /* spind cannot be reached */
    SPIN_E_CLOSED = 6,     /* the connection is closed: disconnect, and connect again */
    SPIN_E_REFUSED = 7,    /* spind refused the request */
    SPIN_E_PROTOCOL = 8,   /* the answer was not understood: another version of the protocol */
    SPIN_E_NOT_FOUND = 9,  /* no counter or context has that name */
    SPIN_E_AMBIGUOUS = 10, /* several contexts have that name */
    SPIN_E_MEMORY = 11,    /* shared memory cannot be mapped */
    SPIN_E_NO_EVENT = 12,  /* no unread event */
    SPIN_E_INTERNAL = 13,  /* a bug in this library */
    SPIN_E_SYSTEM = 14,    /* the system has no descriptor, thread or memory left */
};

/* Message of this thread's last error, "" if there was none. Valid until another function fails in this thread. Never NULL. */
const char *spin_last_error(void);

/* Version of this library, and of the control protocol that it speaks. */
const char *spin_library_version(void);
uint32_t spin_protocol_version(void);

/* -- Connections -- */

typedef struct spin_client spin_client;

/* Connects to the daemon whose control socket is at a path; NULL: /run/spin/spind.sock. Contexts that a client installs are removed
 * when it disconnects, unless they have another lifetime: see spin_options_set_lifetime. */
int spin_connect(const char *socket, spin_client **client);
void spin_disconnect(spin_client *client);

/* Bits of spin_capabilities.guarantees. */
enum spin_guarantee {
    SPIN_HEADER_FIRST = 1,         /* a message's header handler ends before its payload handlers start */
    SPIN_IN_ORDER_DELIVERY = 2,    /* the NIC delivers the packets of a message in the order in which they were sent */
    SPIN_IN_ORDER = 4,             /* payload handlers start in the order in which packets arrived */
    SPIN_RELIABLE = 8,             /* lost packets are retransmitted */
    SPIN_UNMATCHED_TO_KERNEL = 16, /* packets that match no rule go to the kernel */
    SPIN_MATCHED_TO_KERNEL = 32,   /* a handler can pass its packet to the kernel */
};

/* Capabilities of spind and its machine. They are constant while spind runs. Later versions add fields at the end. */
typedef struct spin_capabilities {
    uint32_t protocol; /* version of the control protocol */
    uint32_t threads;
    uint32_t clusters;
    uint32_t hpus_per_cluster;
    uint32_t max_frame;      /* longest frame, from the Ethernet header on, without FCS */
    uint32_t max_payload;    /* longest packet behind an Ethernet header */
    uint32_t handler_memory; /* for image and context together */
    uint32_t scratchpad;     /* largest scratchpad of a context in each cluster */
    uint64_t contexts;       /* most contexts of all users together */
    uint64_t queues;         /* message queues of all contexts together */
    uint64_t host_memory;    /* most host memory of a context */
    uint64_t image;          /* largest image file */
    uint64_t watchdog_us;    /* time limit of a handler */
    uint64_t guarantees;     /* bits of spin_guarantee */
    char version[32];        /* of spind */
    uint64_t units;          /* PsPIN units, which threads belong to */
} spin_capabilities;

/* size is sizeof(spin_capabilities); fields that this library does not know are zero. */
int spin_capabilities_read(const spin_client *client, spin_capabilities *capabilities, size_t size);

/* -- Images -- */

typedef struct spin_image spin_image;

/* Reads a handler image (an ELF file made by spin-cc), or copies one from memory. spind checks it at install. */
int spin_image_load(const char *file, spin_image **image);
int spin_image_copy(const void *from, size_t len, spin_image **image);
void spin_image_free(spin_image *image);

/* -- Options of an installation: as the options of `spinctl install`, which README.md lists -- */

typedef struct spin_options spin_options;

int spin_options_new(spin_options **options);
void spin_options_free(spin_options *options);

int spin_options_set_name(spin_options *options, const char *name);
int spin_options_add_rule(spin_options *options, const char *rule); /* several are alternatives */
int spin_options_set_eom(spin_options *options, const char *eom);
int spin_options_set_key(spin_options *options, const char *key);
int spin_options_set_header(spin_options *options, const char *rule);
int spin_options_set_early(spin_options *options, const char *early); /* wait, drop */

/* Handlers by symbol or address, for an image that does not declare them. NULL: the context has no such handler; for memory: handler
 * memory lies behind the image's own. */
int spin_options_set_handlers(spin_options *options, const char *header, const char *payload, const char *completion,
                              const char *memory);

int spin_options_set_host_memory(spin_options *options, uint64_t bytes);
int spin_options_set_handler_memory(spin_options *options, uint32_t bytes); /* beyond the image's own */
int spin_options_set_scratchpad(spin_options *options, uint32_t bytes);
int spin_options_set_l1_bytes(spin_options *options, uint32_t bytes); /* of each packet */

int spin_options_set_instruction_limit(spin_options *options, uint64_t limit);
int spin_options_set_watchdog_us(spin_options *options, uint64_t us);
int spin_options_set_message_timeout_us(spin_options *options, uint64_t us);
int spin_options_set_doorbell_us(spin_options *options, uint64_t us);

int spin_options_set_abi(spin_options *options, const char *abi);             /* wire, pspin, fpspin */
int spin_options_set_checks(spin_options *options, const char *checks);       /* page, exact */
int spin_options_set_isolation(spin_options *options, const char *isolation); /* context, message */
int spin_options_set_placement(spin_options *options, const char *placement); /* home, any */
int spin_options_set_tier(spin_options *options, const char *tier);           /* auto, user, kernel */
int spin_options_set_full(spin_options *options, const char *full);           /* drop, wait, mark, kill */
int spin_options_set_lifetime(spin_options *options, const char *lifetime);   /* connection, daemon, persistent */
int spin_options_set_weight(spin_options *options, uint32_t weight);
int spin_options_set_hpus(spin_options *options, uint32_t hpus);
int spin_options_set_verdicts(spin_options *options, int on);
int spin_options_set_replaces(spin_options *options, uint32_t context);
int spin_options_set_unit(spin_options *options, uint32_t unit);
int spin_options_set_units(spin_options *options, const char *units); /* a number, all */
int spin_options_set_handler_memory_per_unit(spin_options *options, int on);

/* -- Contexts -- */

typedef struct spin_context spin_context;

/* Installs a context. Image and options may be used again. */
int spin_install(const spin_client *client, const spin_image *image, const spin_options *options, spin_context **context);

/* Frees the handle and unmaps host memory. The context itself stays: see spin_remove. */
void spin_context_free(spin_context *context);

/* Id of the context, from 1; 0 for NULL. */
uint32_t spin_context_id(const spin_context *context);

/* Host memory, mapped until the handle is freed. Handlers use these addresses, and write at any time: read words that they write
 * with atomic loads, in C11 as _Atomic uint64_t. NULL and 0: none was requested, or the context's lifetime is not its connection. */
int spin_context_host_memory(const spin_context *context, void **start, size_t *len);

/* Address and size of handler memory in NIC memory, for spin_read_memory. */
int spin_context_handler_memory(const spin_context *context, uint32_t *address, uint32_t *size);

/* Warnings of spind by number, from 0: rules that never hold, why handlers are interpreted. NULL behind the last one. Valid until the
 * handle is freed. */
const char *spin_context_warning(const spin_context *context, size_t index);

/* Requests by id, for any context of this user, also of another process. spin_find: id of the context with this name or id. */
int spin_find(const spin_client *client, const char *name, uint32_t *context);
int spin_remove(const spin_client *client, uint32_t context);

/* Replaces all rules of a context; eom as for spin_options_set_eom, NULL: each datagram is a message. */
int spin_set_rules(const spin_client *client, uint32_t context, const char *const *rules, size_t count, const char *eom);

/* Read and write NIC memory of a context that this client installed, at the addresses that handlers use: image data, handler memory,
 * scratchpads. At most 16 MiB at a time. Aligned doublewords are written atomically, in order of their addresses. */
int spin_read_memory(const spin_client *client, uint32_t context, uint32_t address, void *to, size_t len);
int spin_write_memory(const spin_client *client, uint32_t context, uint32_t address, const void *from, size_t len);

/* The same in one unit of a context, by number from 0 among those that run it; spin_read_memory and spin_write_memory use unit 0. Units
 * have scratchpads of their own, and handler memory too after spin_options_set_handler_memory_per_unit. */
int spin_read_unit_memory(const spin_client *client, uint32_t context, uint32_t unit, uint32_t address, void *to, size_t len);
int spin_write_unit_memory(const spin_client *client, uint32_t context, uint32_t unit, uint32_t address, const void *from, size_t len);

/* -- Regions: further host memory of contexts -- */

typedef struct spin_region spin_region;

/* Allocates memory that can be attached to contexts, zeroed. page: 0, or the size of huge pages, of which len is a multiple (see
 * /sys/kernel/mm/hugepages). */
int spin_region_alloc(uint64_t len, uint64_t page, spin_region **region);

/* Unmaps the memory. Detach it first: handlers keep its addresses, which may become other memory's. */
void spin_region_free(spin_region *region);
int spin_region_memory(const spin_region *region, void **start, size_t *len);

/* Attaches a region to a context of this user, which may have 16: handlers reach it by its addresses in this process, until it is
 * detached or the context is gone. */
int spin_attach(const spin_client *client, uint32_t context, const spin_region *region);

/* Attaches memory that the program has mapped at start: a memfd of len bytes, whole pages of any size and all of them allocated, with
 * the seals F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL. SPIN_E_REFUSED: it is another kind of file, and spind says what is missing.
 * SPIN_E_VALUE: fd is negative; anonymous memory cannot be attached. */
int spin_attach_fd(const spin_client *client, uint32_t context, int fd, const void *start, uint64_t len);

/* Detaches the region that begins at start. */
int spin_detach(const spin_client *client, uint32_t context, const void *start);

/* -- Events -- */

typedef struct spin_events spin_events;

enum spin_event_kind {
    SPIN_EVENT_FAULT = 1,            /* a fault ended a handler: stage, cause, pc, address */
    SPIN_EVENT_TIMED_OUT = 2,        /* the next packet of a message did not arrive in time */
    SPIN_EVENT_EVICTED = 3,          /* a message was ended: another one needed its queue */
    SPIN_EVENT_KILLED = 4,           /* a message was cancelled: the share of the packet buffer was full */
    SPIN_EVENT_COPIED_TO_HOST = 5,   /* a copy that requested an event is done: host, length */
    SPIN_EVENT_COPIED_FROM_HOST = 6, /* likewise */
};

typedef struct spin_event {
    uint32_t kind;     /* spin_event_kind */
    uint32_t flow;     /* message queue; handlers know it as flow_id */
    uint32_t stage;    /* of the handler: 0 header, 1 payload, 2 completion */
    uint32_t cause;    /* code of the fault; spin_events_text has its name */
    uint32_t pc;
    uint32_t address;
    uint32_t length;   /* bytes of the copy */
    uint32_t reserved; /* 0 */
    uint64_t host;     /* host address of the copy's first byte */
} spin_event;

/* Maps the event ring of a context, beginning with the oldest event that is stored. Reading it makes no request to spind. */
int spin_events_open(const spin_client *client, uint32_t context, spin_events **events);
void spin_events_close(spin_events *events);

/* Reads the next event; SPIN_E_NO_EVENT: there is none. */
int spin_events_poll(spin_events *events, spin_event *event);

/* Sleeps until an event can be read (SPIN_OK), or for timeout_us microseconds (SPIN_E_NO_EVENT). */
int spin_events_wait(spin_events *events, uint64_t timeout_us);

/* A descriptor for poll(2), epoll(7) and event loops: an eventfd(2), which becomes readable when events arrive. It may be readable
 * without one. Read its 8 bytes, then poll events until there is none. The library closes it in spin_events_close. The first call
 * starts a thread that handles no signals; a program that can wait for nothing else should call spin_events_wait. */
int spin_events_fd(spin_events *events, int *fd);

/* Description of the event that was read last, "" before the first. Valid until the next spin_events_poll. */
const char *spin_events_text(spin_events *events);

/* Number of events that were overwritten before they were read. */
uint64_t spin_events_lost(spin_events *events);

/* -- Counters -- */

typedef struct spin_stats spin_stats;

/* Reads all counters at once. */
int spin_stats_read(const spin_client *client, spin_stats **stats);
void spin_stats_free(spin_stats *stats);

/* Values by the names that `spinctl stats --explain` lists; SPIN_E_NOT_FOUND: no such counter or context, or not for this user. */
int spin_stats_engine(const spin_stats *stats, const char *name, uint64_t *value);
int spin_stats_nic(const spin_stats *stats, const char *name, uint64_t *value);
int spin_stats_context(const spin_stats *stats, uint32_t context, const char *name, uint64_t *value);

/* -- Captures, on a spind with `--nic loopback` -- */

typedef struct spin_capture spin_capture;

typedef struct spin_replayed {
    uint64_t arrived;   /* frames that arrived */
    uint64_t unmatched; /* of those, frames that no context had a rule for */
    uint64_t too_long;  /* frames skipped: longer than the NIC accepts */
    uint64_t too_short; /* frames skipped: shorter than an Ethernet header */
    uint64_t sent;      /* frames that handlers sent */
} spin_replayed;

/* Receives the frames of a pcap file's bytes, and returns the sent frames as such bytes. counts and sent may be NULL. */
int spin_replay(const spin_client *client, const void *pcap, size_t len, spin_replayed *counts, spin_capture **sent);
int spin_capture_bytes(const spin_capture *capture, const void **start, size_t *len);
void spin_capture_free(spin_capture *capture);

#ifdef __cplusplus
}
#endif

#endif
