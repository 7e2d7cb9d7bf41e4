/* Unpacks messages of a vector datatype: blocks of bytes at a stride, into host memory behind the HPUs' pages. The host program has
 * written the type to handler memory. State of a message comes from an allocator in handler memory, and is found by a hash table
 * there. The completion handler tells the host how many bytes a message had. */
#include <handler.h>
#include <packets.h>
#include <pspin.h>
#include <spin_conf.h>
#include <spin_dma.h>
#include <spin_host.h>

#define BUCKETS 64
#define ARENA 16384

typedef struct {
    uint32_t magic, block, stride, extent;
} datatype_t;

typedef struct state {
    struct state *next;
    uint32_t id;
    volatile int32_t bytes;
} state_t;

typedef struct {
    spin_lock_t lock;
    uint32_t used;
    state_t *free;
    state_t *buckets[BUCKETS];
    uint8_t arena[ARENA];
} heap_t;

static heap_t heap __attribute__((section(".l2_handler_data")));

static state_t *lookup(uint32_t id, bool make) {
    state_t **at = &heap.buckets[id % BUCKETS], *found;
    spin_lock_lock(&heap.lock);
    for (found = *at; found && found->id != id; found = found->next) {}
    if (!found && make) {
        if (heap.free) {
            found = heap.free;
            heap.free = found->next;
        } else if (heap.used + sizeof(state_t) <= ARENA) {
            found = (state_t *)&heap.arena[heap.used];
            heap.used += sizeof(state_t);
        }
        if (found) {
            found->id = id;
            found->bytes = 0;
            found->next = *at;
            *at = found;
        }
    }
    spin_lock_unlock(&heap.lock);
    return found;
}

static int32_t release(uint32_t id) {
    state_t **at = &heap.buckets[id % BUCKETS];
    int32_t bytes = -1;
    spin_lock_lock(&heap.lock);
    while (*at && (*at)->id != id) at = &(*at)->next;
    if (*at) {
        state_t *gone = *at;
        bytes = gone->bytes;
        *at = gone->next;
        gone->next = heap.free;
        heap.free = gone;
    }
    spin_lock_unlock(&heap.lock);
    return bytes;
}

static void acknowledge(slmp_pkt_hdr_t *hdrs) {
    mac_addr_t mac = hdrs->eth_hdr.src;
    uint32_t ip = hdrs->ip_hdr.source_id;
    uint16_t port = hdrs->udp_hdr.src_port;
    spin_cmd_t put;
    hdrs->eth_hdr.src = hdrs->eth_hdr.dest;
    hdrs->eth_hdr.dest = mac;
    hdrs->ip_hdr.source_id = hdrs->ip_hdr.dest_id;
    hdrs->ip_hdr.dest_id = ip;
    hdrs->udp_hdr.src_port = hdrs->udp_hdr.dst_port;
    hdrs->udp_hdr.dst_port = port;
    hdrs->ip_hdr.length = htons(sizeof(ip_hdr_t) + sizeof(udp_hdr_t) + sizeof(slmp_hdr_t));
    hdrs->udp_hdr.length = htons(sizeof(udp_hdr_t) + sizeof(slmp_hdr_t));
    hdrs->udp_hdr.checksum = 0;
    hdrs->ip_hdr.checksum = 0;
    hdrs->ip_hdr.checksum = ip_checksum(&hdrs->ip_hdr, sizeof(ip_hdr_t));
    hdrs->slmp_hdr.flags = htons(MKACK);
    spin_send_packet(hdrs, sizeof(*hdrs), &put);
    spin_cmd_wait(put);
}

__handler__ void datatypes_hh(handler_args_t *args) {
    slmp_pkt_hdr_t *hdrs = (slmp_pkt_hdr_t *)args->task->pkt_mem;
    lookup(ntohl(hdrs->slmp_hdr.msg_id), true);
}

__handler__ void datatypes_ph(handler_args_t *args) {
    task_t *task = args->task;
    slmp_pkt_hdr_t *hdrs = (slmp_pkt_hdr_t *)task->pkt_mem;
    volatile datatype_t *type = (volatile datatype_t *)task->handler_mem;
    uint32_t length = SLMP_PAYLOAD_LEN(hdrs), offset = ntohl(hdrs->slmp_hdr.pkt_off), done = 0;
    uint32_t id = ntohl(hdrs->slmp_hdr.msg_id);
    uint16_t flags = ntohs(hdrs->slmp_hdr.flags);
    uint64_t target = HOST_ADDR(args) + CORE_COUNT * PAGE_SIZE + (uint64_t)id * type->extent;
    state_t *state = lookup(id, false);
    if (!state || type->magic != 0xdada) {
        printf("message %x has no state, or the type is missing\n", (unsigned)id);
        return;
    }
    while (done < length) {
        uint32_t at = offset + done, in_block = at % type->block;
        uint32_t count = type->block - in_block;
        spin_cmd_t dma;
        if (count > length - done) count = length - done;
        spin_dma_to_host(target + (uint64_t)(at / type->block) * type->stride + in_block, (uint8_t *)(hdrs + 1) + done, count, false, &dma);
        spin_cmd_wait(dma);
        done += count;
    }
    amo_add(&state->bytes, (int32_t)length);
    if (SYN(flags) && !EOM(flags)) acknowledge(hdrs);
}

__handler__ void datatypes_th(handler_args_t *args) {
    slmp_pkt_hdr_t *hdrs = (slmp_pkt_hdr_t *)args->task->pkt_mem;
    fpspin_host_req(args, (uint32_t)release(ntohl(hdrs->slmp_hdr.msg_id)));
    acknowledge(hdrs);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {datatypes_hh, datatypes_ph, datatypes_th};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
