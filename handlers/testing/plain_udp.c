/* Sends each frame back with two results in its first bytes: whether spin_parse_plain_udp_l2 accepts it; and whether
 * spin_parse_udp_l2 accepts it, with the same view if both do. */
#include <spin.h>

enum { NONE, ANY, ALIKE };

static bool alike(const spin_packet *a, const spin_packet *b) {
    return a->frame == b->frame && a->frame_len == b->frame_len && a->ip == b->ip && a->l4 == b->l4 &&
           a->l4_len == b->l4_len && a->payload == b->payload && a->payload_len == b->payload_len &&
           a->ethertype == b->ethertype && a->protocol == b->protocol;
}

void payload_handler(handler_args_t *args) {
    uint8_t *frame = (uint8_t *)args->task->l2_pkt_mem;
    spin_packet plain, any;
    bool is_plain = spin_parse_plain_udp_l2(args, &plain), is_any = spin_parse_udp_l2(args, &any);
    frame[0] = is_plain;
    frame[1] = !is_any ? NONE : is_plain && alike(&plain, &any) ? ALIKE : ANY;
    spin_cmd_t handle;
    spin_send_packet(frame, args->task->pkt_mem_size, &handle);
}
