/* TCP header and options: checks and counters, for the handler and its native twin. */
#ifndef TCP_HEADER_H
#define TCP_HEADER_H

#include <spin_packet.h>

#define TCP_HEADER 20u
#define TCP_FLAGS 8u

/* Kinds of options (RFC 9293, RFC 7323, RFC 2018). */
enum { TCP_END = 0, TCP_NOP = 1, TCP_MSS = 2, TCP_WINDOW_SCALE = 3, TCP_SACK_PERMITTED = 4, TCP_TIMESTAMPS = 8 };

/* Counters. A malformed segment counts nowhere else. */
typedef struct tcp_stats {
    uint32_t segments;
    uint32_t malformed;
    uint32_t payload_bytes;
    uint32_t flags[TCP_FLAGS]; /* segments with the flag, FIN first */
    uint32_t mss;              /* segments with the option */
    uint32_t mss_sum;
    uint32_t window_scale;
    uint32_t window_scale_sum;
    uint32_t sack_permitted;
    uint32_t timestamps;
    uint32_t timestamp_sum;
    uint32_t other_options;
} tcp_stats;

/* Options of a segment. */
typedef struct tcp_options {
    bool has_mss;
    bool has_window_scale;
    bool has_sack_permitted;
    bool has_timestamps;
    uint8_t window_scale;
    uint16_t mss;
    uint32_t timestamp;
    uint32_t others;
} tcp_options;

/* Reads an option with a length byte. Returns false if its length is not that of its kind. */
static inline bool tcp_read_option(const uint8_t *option, tcp_options *options) {
    uint32_t length = option[1];
    switch (option[0]) {
    case TCP_MSS:
        if (length != 4) return false;
        options->has_mss = true;
        options->mss = spin_read_be16(option + 2);
        return true;
    case TCP_WINDOW_SCALE:
        if (length != 3) return false;
        options->has_window_scale = true;
        options->window_scale = option[2];
        return true;
    case TCP_SACK_PERMITTED:
        options->has_sack_permitted = true;
        return length == 2;
    case TCP_TIMESTAMPS:
        if (length != 10) return false;
        options->has_timestamps = true;
        options->timestamp = spin_read_be32(option + 2);
        return true;
    default:
        options->others++;
        return true;
    }
}

/* Walks the options. Returns false if one is cut short or has a wrong length. */
static inline bool tcp_read_options(const uint8_t *at, const uint8_t *end, tcp_options *options) {
    *options = (tcp_options){0};
    while (at < end && *at != TCP_END) {
        if (*at == TCP_NOP) {
            at++;
            continue;
        }
        uint32_t left = (uint32_t)(end - at);
        if (left < 2 || at[1] < 2 || at[1] > left) return false;
        if (!tcp_read_option(at, options)) return false;
        at += at[1];
    }
    return true;
}

/* Parses the TCP header of an IPv4 packet. Returns the header's length, or 0 if the segment is malformed. */
static inline uint32_t tcp_parse(const spin_packet *p, tcp_options *options) {
    if (p->l4_len < TCP_HEADER) return 0;
    uint32_t header = (p->l4[12] >> 4) * 4u;
    if (header < TCP_HEADER || header > p->l4_len) return 0;
    return tcp_read_options(p->l4 + TCP_HEADER, p->l4 + header, options) ? header : 0;
}

#endif
