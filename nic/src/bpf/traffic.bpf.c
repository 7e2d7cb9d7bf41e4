// SPDX-License-Identifier: MIT OR GPL-2.0
//
// XDP programs that make and count test traffic. nic/src/traffic/pattern.rs defines the frames, and makes equal ones in
// user space.

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define uint_field(name, value) int(*name)[value]
#define type_field(name, type) type *name

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*monotonic_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*adjust_tail)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

// traffic/pattern.rs
enum { MAX_FLOWS = 1 << 17, MAX_LENGTHS = 1 << 8, FLOWS_PER_ADDRESS = 1 << 14, FIRST_PORT = 1024 };
enum { IP = 14, UDP = 34, PAYLOAD = 42, SLMP_LEN = 10, KEY_VALUE_LEN = 12, SIGNATURE_LEN = 18, MAX_FRAME = 3072 };
enum { CONSTANT_WORDS = 7 };
enum header { NO_HEADER, SLMP, KEY_VALUE };
enum { GET = 1, SET = 2, SPREAD = 37 }; // handlers/kvstore; prime to 100
enum { SLMP_EOM = 0x8000, SLMP_SYN = 0x4000 }; // host/libfpspin/src/slmp/packet.rs

// traffic/live.rs and traffic/hook.rs rely on the order of fields.
struct settings {
	__u32 interface; // leaves there
	__u32 flows; // entries in use of `flows`
	__u32 lengths; // entries in use of `lengths`
	__u32 packets; // of an SLMP message; 1 without SLMP
	__u32 header; // behind the UDP header: enum header
	__u32 sets; // requests of a hundred that set a value
	__u32 ip_sum; // of the constant words of the IPv4 header
	__u32 udp_sum; // of those of pseudo header, UDP header and payload
	__u32 address; // of the first sender
	__u32 run; // in all signatures
	__u32 signature_at;
	__u32 namespace; // inode of the interface's network namespace
	__u64 constant[CONSTANT_WORDS]; // start of a frame, with zeros for the varying fields
};

struct state {
	__u64 sequence;
	__u64 message;
	__u32 packet; // of the message
	__u32 flow, length; // indices into the tables
	__u32 offset; // of the payload within the message
};

struct counts {
	__u64 packets;
	__u64 bytes;
};

struct {
	uint_field(type, BPF_MAP_TYPE_ARRAY);
	uint_field(max_entries, 1);
	type_field(key, __u32);
	type_field(value, struct settings);
} settings SEC(".maps");

// Runs of the generator are on one CPU at a time.
struct {
	uint_field(type, BPF_MAP_TYPE_ARRAY);
	uint_field(max_entries, 1);
	type_field(key, __u32);
	type_field(value, struct state);
} state SEC(".maps");

struct {
	uint_field(type, BPF_MAP_TYPE_ARRAY);
	uint_field(max_entries, MAX_FLOWS);
	type_field(key, __u32);
	type_field(value, __u32);
} flows SEC(".maps");

struct {
	uint_field(type, BPF_MAP_TYPE_ARRAY);
	uint_field(max_entries, MAX_LENGTHS);
	type_field(key, __u32);
	type_field(value, __u32);
} lengths SEC(".maps");

// 0: frames of this run that `spin_count` received. 1: frames that `spin_reflect` sent back. 2: frames that the
// interface accepted, as `spin_sent` was told; there `bytes` is 0.
struct {
	uint_field(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	uint_field(max_entries, 3);
	type_field(key, __u32);
	type_field(value, struct counts);
} counts SEC(".maps");

INLINE __u16 big16(__u16 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap16(value) : value;
}

INLINE void put16(__u8 *at, __u16 value)
{
	*(__u16 *)at = big16(value);
}

INLINE void put64(__u8 *at, __u64 value)
{
	for (int i = 0; i < 4; i++)
		put16(at + 2 * i, value >> (48 - 16 * i));
}

INLINE __u32 words_of(__u64 value)
{
	return (value & 0xffff) + (value >> 16 & 0xffff) + (value >> 32 & 0xffff) + (value >> 48);
}

INLINE __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

INLINE void count(__u32 index, __u64 packets, __u64 bytes)
{
	struct counts *counted = map_lookup(&counts, &index);

	if (counted) {
		counted->packets += packets;
		counted->bytes += bytes;
	}
}

// The SLMP header of a packet. Returns the sum of its words.
INLINE __u32 write_slmp(__u8 *at, struct state *now, const struct settings *set, __u32 length)
{
	__u16 flags = (now->packet == 0 ? SLMP_SYN : 0) | (now->packet + 1 >= set->packets ? SLMP_EOM : 0);
	__u32 message = now->message, offset = now->offset;

	put16(at, flags);
	put16(at + 2, message >> 16);
	put16(at + 4, message);
	put16(at + 6, offset >> 16);
	put16(at + 8, offset);
	now->offset += length - PAYLOAD - SLMP_LEN;
	return flags + words_of(message) + words_of(offset);
}

// The request for a key. Returns the sum of its words.
INLINE __u32 write_request(__u8 *at, const struct state *now, const struct settings *set, __u32 key)
{
	__u32 operation = now->sequence % 100 * SPREAD % 100 < set->sets ? SET : GET, value = now->sequence;

	put16(at + 2, operation);
	put16(at + 4, key >> 16);
	put16(at + 6, key);
	put16(at + 8, value >> 16);
	put16(at + 10, value);
	return operation + words_of(key) + words_of(value);
}

// Frames of the page pool come back with the bytes of an earlier packet, and what a receiver has written in place, such as the
// addresses of a reply: headers are written each time, and all varying bytes.
SEC("xdp") int spin_generate(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct settings *set = map_lookup(&settings, &zero);
	struct state *now = map_lookup(&state, &zero);
	__u32 *flow, *length, sum, address, at;
	__u64 time = monotonic_ns();
	__u8 *frame, *end;
	__u16 port;

	if (!set || !now)
		return XDP_ABORTED;
	flow = map_lookup(&flows, &now->flow);
	length = map_lookup(&lengths, &now->length);
	if (!flow || !length)
		return XDP_ABORTED;
	if (*length != ctx->data_end - ctx->data && adjust_tail(ctx, *length - (ctx->data_end - ctx->data)))
		return XDP_ABORTED;
	frame = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	at = set->signature_at;
	if (at > MAX_FRAME || frame + at + SIGNATURE_LEN > end || frame + sizeof(set->constant) > end)
		return XDP_ABORTED;
	for (int i = 0; i < CONSTANT_WORDS; i++)
		((__u64 *)frame)[i] = set->constant[i];

	address = set->address + *flow / FLOWS_PER_ADDRESS;
	port = FIRST_PORT + *flow % FLOWS_PER_ADDRESS;
	put16(frame + IP + 2, *length - IP);
	put16(frame + IP + 12, address >> 16);
	put16(frame + IP + 14, address);
	put16(frame + IP + 10, folded(set->ip_sum + *length - IP + words_of(address)));

	put16(frame + UDP, port);
	put16(frame + UDP + 4, *length - UDP);
	// The length is in the pseudo header, too.
	sum = set->udp_sum + words_of(address) + port + 2 * (*length - UDP);
	if (set->header == SLMP)
		sum += write_slmp(frame + PAYLOAD, now, set, *length);
	else if (set->header == KEY_VALUE)
		sum += write_request(frame + PAYLOAD, now, set, *flow);
	put16(frame + at, set->run);
	put64(frame + at + 2, now->sequence);
	put64(frame + at + 10, time);
	sum = folded(sum + set->run + words_of(now->sequence) + words_of(time));
	put16(frame + UDP + 6, sum ? sum : 0xffff);

	now->sequence++;
	if (++now->length >= set->lengths)
		now->length = 0;
	if (++now->packet >= set->packets) {
		now->packet = 0;
		now->offset = 0;
		now->message++;
		if (++now->flow >= set->flows)
			now->flow = 0;
	}
	return redirect(set->interface, 0);
}

#define OF_THE_KERNEL __attribute__((preserve_access_index))
struct ns_common {
	unsigned int inum;
} OF_THE_KERNEL;
struct net {
	struct ns_common ns;
} OF_THE_KERNEL;
typedef struct {
	struct net *net;
} OF_THE_KERNEL possible_net_t;
struct net_device {
	int ifindex;
	possible_net_t nd_net;
} OF_THE_KERNEL;

// The outcome of a bulk of redirected frames (trace/events/xdp.h): from, to, sent, drops, error.
SEC("tp_btf/xdp_devmap_xmit") int spin_sent(unsigned long long *arguments)
{
	__u32 zero = 0;
	struct settings *set = map_lookup(&settings, &zero);
	struct net_device *to = (void *)arguments[1];

	// Other namespaces have interfaces with the same index.
	if (set && (__u32)to->ifindex == set->interface && to->nd_net.net->ns.inum == set->namespace)
		count(2, (int)arguments[2], 0);
	return 0;
}

// Counts and drops the frames of this run. Passes all others.
SEC("xdp") int spin_count(struct xdp_md *ctx)
{
	const __u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct settings *set = map_lookup(&settings, &zero);

	if (!set || set->signature_at > MAX_FRAME)
		return XDP_PASS;
	if (frame + set->signature_at + SIGNATURE_LEN > end ||
	    *(const __u16 *)(frame + set->signature_at) != big16(set->run))
		return XDP_PASS;
	count(0, 1, end - frame);
	return XDP_DROP;
}

// Sends UDP datagrams back to their sender: the kernel's own fastest echo.
SEC("xdp") int spin_reflect(struct xdp_md *ctx)
{
	__u8 *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (frame + PAYLOAD > end || frame[12] != 8 || frame[13] || frame[IP] != 0x45 || frame[IP + 9] != 17)
		return XDP_PASS;
	for (int i = 0; i < 6; i += 2) {
		__u16 *to = (__u16 *)(frame + i), *from = (__u16 *)(frame + 6 + i), swap = *to;

		*to = *from;
		*from = swap;
	}
	for (int i = 0; i < 4; i += 2) {
		__u16 *from = (__u16 *)(frame + IP + 12 + i), *to = (__u16 *)(frame + IP + 16 + i), swap = *to;

		*to = *from;
		*from = swap;
	}
	__u16 *from = (__u16 *)(frame + UDP), *to = (__u16 *)(frame + UDP + 2), swap = *to;

	*to = *from;
	*from = swap;
	count(1, 1, end - frame);
	return XDP_TX;
}

// What a veth needs at the far end before it accepts frames from a program.
SEC("xdp") int spin_accept(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
