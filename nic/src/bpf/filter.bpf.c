// SPDX-License-Identifier: MIT OR GPL-2.0
//
// The XDP program: frames that the compiled rules match go to a handler's program, or to the AF_XDP socket of the queue they
// came in on; all others go to the kernel's stack. The rules, and how they are evaluated, are defined in abi/src/rules.rs;
// names here follow it.
//
// Written for the verifier of Linux 5.15 and later: a bounded loop, no helper newer than redirect_map. The functions
// without `static` are verified once each, with unknown arguments, so that the loop over the tests costs the verifier
// the loop's own instructions only.

#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define VERIFIED_ALONE __attribute__((noinline))
#define uint_field(name, value) int(*name)[value]
#define type_field(name, type) type *name

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static long (*map_delete)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static long (*adjust_meta)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_meta;
static long (*tail_call)(void *ctx, void *map, __u32 index) = (void *)BPF_FUNC_tail_call;
static long (*redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;

// abi/src/rules.rs
enum { MAX_TESTS = 512, MAX_KEYS = 16384, MAX_PROGRAMS = 2048, MAX_VLAN_TAGS = 2, MAX_IPV6_EXTENSIONS = 4 };
enum { END_OF_RULE = 1, LITTLE_ENDIAN_WORD = 2, ZERO_BEYOND = 4 };
enum { BASE_FRAME = 0, BASE_IP = 1, BASE_L4 = 2, BASE_PAYLOAD = 3, BASE_KIND = 4 };

enum { ETHERTYPE_VLAN = 0x8100, ETHERTYPE_QINQ = 0x88a8, ETHERTYPE_IPV4 = 0x0800, ETHERTYPE_IPV6 = 0x86dd };
enum { HOP_BY_HOP = 0, ICMP = 1, TCP = 6, UDP = 17, ROUTING = 43, FRAGMENT = 44, ICMPV6 = 58, DESTINATION = 60 };

struct test {
	__u8 base;
	__u8 flags;
	__s16 offset;
	__u32 mask;
	__u32 min;
	__u32 max;
};

struct table {
	__u32 count;
	struct test tests[MAX_TESTS];
	__u32 targets[MAX_TESTS];
};

// What follows from a key. A target is 0 for user space, or one more than the index of a program.
struct key_rule {
	__u32 target;
	__u16 tests_before;
	__u8 has_narrower;
	__u8 reserved;
};

// Destination of a packet. All addresses have a key of their own, with zeroes for the address.
struct key {
	__u8 address[16];
	__u8 port[2];
	__u8 version;
	__u8 protocol;
};

// afxdp/filter.rs relies on this order.
struct counters {
	__u64 passed;
	__u64 passed_bytes;
	__u64 redirected;
	__u64 redirected_bytes;
	__u64 unserved; // matched, but no socket is bound to this queue: passed to the kernel
	__u64 called; // a handler's program was called
};

// The table, replaced as a whole by storing another inner map. The first table is empty and matches nothing.
struct rule_table {
	uint_field(type, BPF_MAP_TYPE_ARRAY);
	uint_field(max_entries, 1);
	type_field(key, __u32);
	type_field(value, struct table);
} no_rules SEC(".maps");

struct {
	uint_field(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	uint_field(max_entries, 1);
	type_field(key, __u32);
	struct rule_table *values[];
} rules SEC(".maps") = { .values = { &no_rules } };

// Exact keys. The kernel seeds the hash at random.
struct {
	uint_field(type, BPF_MAP_TYPE_HASH);
	uint_field(map_flags, BPF_F_NO_PREALLOC);
	uint_field(max_entries, MAX_KEYS);
	type_field(key, struct key);
	type_field(value, struct key_rule);
} keys SEC(".maps");

// Programs of handlers.
struct {
	uint_field(type, BPF_MAP_TYPE_PROG_ARRAY);
	uint_field(max_entries, MAX_PROGRAMS);
	type_field(key, __u32);
	type_field(value, __u32);
} programs SEC(".maps");

struct {
	uint_field(type, BPF_MAP_TYPE_XSKMAP);
	uint_field(max_entries, 1); // set to the number of queues before loading
	type_field(key, __u32);
	type_field(value, __u32);
} sockets SEC(".maps");

struct {
	uint_field(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	uint_field(max_entries, 1);
	type_field(key, __u32);
	type_field(value, struct counters);
} counters SEC(".maps");

// Tags of frames that user space returns to the stack, where a generic program sees them a second time. Each tag lets one
// frame pass, so a tag left in a reused buffer has no effect. Tags of frames lost on the way are evicted.
struct {
	uint_field(type, BPF_MAP_TYPE_LRU_HASH);
	uint_field(max_entries, 1024);
	type_field(key, __u64);
	type_field(value, __u8);
} returning SEC(".maps");

// Greater offsets never lie in a parsed frame. The verifier requires packet offsets below 65536.
#define MAX_OFFSET 0xff00u
#define ABSENT 0xffffffffu

// Header positions, indexed by base. The position of an absent base is ABSENT.
struct layout {
	__u32 position[4];
	__u32 limit[4];
	__u32 kind;
};

INLINE __u16 big16(__u16 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap16(value) : value;
}

INLINE __u32 big32(__u32 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(value) : value;
}

// `size` bytes at `offset` of the frame, or null when the frame does not contain all of them.
INLINE const void *bytes(const struct xdp_md *ctx, __u32 offset, __u32 size)
{
	const __u8 *end = (const __u8 *)(long)ctx->data_end;
	const __u8 *start = (const __u8 *)(long)ctx->data;

	if (offset > MAX_OFFSET)
		return 0;
	start += offset;
	return start + size > end ? 0 : start;
}

INLINE __u32 byte_at(const struct xdp_md *ctx, __u32 offset)
{
	const __u8 *byte = bytes(ctx, offset, 1);

	return byte ? *byte : 0;
}

// Finds L4 behind the IPv6 header and its extension headers. Returns its position or ABSENT.
INLINE __u32 skip_ipv6_extensions(const struct xdp_md *ctx, __u32 position, __u32 end, __u32 *protocol)
{
	__u32 next = *protocol;

	for (int i = 0; i < MAX_IPV6_EXTENSIONS; i++) {
		const __u8 *header;

		if (next != HOP_BY_HOP && next != ROUTING && next != DESTINATION)
			break;
		header = bytes(ctx, position, 2);
		if (!header || position + 2 > end)
			return ABSENT;
		next = header[0];
		position += 8 * (1 + (__u32)header[1]);
		if (position > end)
			return ABSENT;
	}
	if (next == HOP_BY_HOP || next == ROUTING || next == DESTINATION || next == FRAGMENT)
		return ABSENT;
	*protocol = next;
	return position;
}

// Sets the bases IP and L4 of an IPv4 packet at `start`. Returns the protocol, 0 when L4 is absent.
INLINE __u32 parse_ipv4(const struct xdp_md *ctx, struct layout *layout, __u32 start, __u32 frame_length)
{
	const __u8 *header = bytes(ctx, start, 20);
	__u32 header_length, total_length, end;

	if (!header || header[0] >> 4 != 4)
		return 0;
	header_length = (header[0] & 15) * 4;
	total_length = (__u32)header[2] << 8 | header[3];
	if (header_length < 20 || start + header_length > frame_length || total_length < header_length)
		return 0;
	end = start + total_length;
	layout->kind |= 4 << 8;
	layout->position[BASE_IP] = start;
	layout->limit[BASE_IP] = end < frame_length ? end : frame_length;
	// MF, or an offset: the position of the following bytes in the datagram is unknown.
	if ((((__u32)header[6] << 8 | header[7]) & 0x3fff) || end > frame_length || total_length == header_length ||
	    header[9] == 0)
		return 0;
	layout->position[BASE_L4] = start + header_length;
	layout->limit[BASE_L4] = end;
	return header[9];
}

// Sets the bases IP and L4 of an IPv6 packet at `start`. Returns the protocol, 0 when L4 is absent.
INLINE __u32 parse_ipv6(const struct xdp_md *ctx, struct layout *layout, __u32 start, __u32 frame_length)
{
	const __u8 *header = bytes(ctx, start, 40);
	__u32 end, position, protocol;

	if (!header || header[0] >> 4 != 6)
		return 0;
	end = start + 40 + ((__u32)header[4] << 8 | header[5]);
	layout->kind |= 6 << 8;
	layout->position[BASE_IP] = start;
	layout->limit[BASE_IP] = end < frame_length ? end : frame_length;
	if (end > frame_length)
		return 0;
	protocol = header[6];
	position = skip_ipv6_extensions(ctx, start + 40, end, &protocol);
	if (position == ABSENT || position >= end)
		return 0;
	layout->position[BASE_L4] = position;
	layout->limit[BASE_L4] = end;
	return protocol;
}

// Sets the base PAYLOAD of a packet whose L4 is present.
INLINE void parse_l4(const struct xdp_md *ctx, struct layout *layout, __u32 protocol)
{
	__u32 start = layout->position[BASE_L4], end = layout->limit[BASE_L4];
	__u32 length = 8;

	if (protocol == TCP) {
		if (start + 13 > end)
			return;
		length = (byte_at(ctx, start + 12) >> 4) * 4;
		if (length < 20)
			return;
	} else if (protocol != UDP && protocol != ICMP && protocol != ICMPV6) {
		return;
	}
	if (start + length > end)
		return;
	layout->position[BASE_PAYLOAD] = start + length;
	layout->limit[BASE_PAYLOAD] = end;
}

VERIFIED_ALONE int parse(struct xdp_md *ctx, struct layout *layout)
{
	__u32 frame_length, start = 14, ethertype = 0, protocol = 0;
	const __u16 *type;

	if (!layout)
		return 0;
	frame_length = ctx->data_end - ctx->data;
	layout->position[BASE_FRAME] = 0;
	layout->limit[BASE_FRAME] = frame_length;
	layout->position[BASE_IP] = layout->position[BASE_L4] = layout->position[BASE_PAYLOAD] = ABSENT;
	layout->limit[BASE_IP] = layout->limit[BASE_L4] = layout->limit[BASE_PAYLOAD] = 0;

	type = bytes(ctx, 12, 2);
	if (type)
		ethertype = big16(*type);
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_QINQ)
			break;
		type = bytes(ctx, start + 2, 2);
		ethertype = type ? big16(*type) : 0;
		start += 4;
	}
	layout->kind = ethertype << 16;
	if (ethertype == ETHERTYPE_IPV4)
		protocol = parse_ipv4(ctx, layout, start, frame_length);
	else if (ethertype == ETHERTYPE_IPV6)
		protocol = parse_ipv6(ctx, layout, start, frame_length);
	layout->kind |= protocol;
	if (layout->position[BASE_L4] != ABSENT)
		parse_l4(ctx, layout, protocol);
	return 0;
}

#define FOUND (1ull << 32)

// The word at `offset`, with FOUND set, or 0 when it does not lie within `limit`. A negative offset comes as a huge one.
VERIFIED_ALONE __u64 load_word(struct xdp_md *ctx, __u32 offset, __u32 limit, __u32 flags)
{
	const __u32 *whole = bytes(ctx, offset, 4);
	__u32 word = 0;

	if (whole && offset + 4 <= limit) {
		word = big32(*whole);
	} else {
		if (!(flags & ZERO_BEYOND))
			return 0;
		for (__u32 i = 0; i < 4; i++) {
			__u32 at = offset + i;

			word = word << 8 | (at < limit ? byte_at(ctx, at) : 0);
		}
	}
	return FOUND | (flags & LITTLE_ENDIAN_WORD ? __builtin_bswap32(word) : word);
}

// What follows from the frame's key: a struct key_rule as a number, with FOUND_KEY set, or 0 if it has none.
#define FOUND_KEY (1ull << 63)

INLINE __u64 found_key(const struct key_rule *rule)
{
	return FOUND_KEY | (__u64)rule->tests_before << 32 | rule->target;
}

INLINE __u32 tests_before_key(__u64 key)
{
	return key >> 32 & 0xffff;
}

// What follows from a key whose address is not set yet. The address is at `address_at`, with 4 bytes or 16.
INLINE __u64 rule_of(const struct xdp_md *ctx, struct key *key, __u32 address_at, int has_16)
{
	const struct key_rule *rule = map_lookup(&keys, key);
	const __u8 *address;
	__u64 any = 0; // what follows from the key with any address

	if (rule) {
		any = found_key(rule);
		if (!rule->has_narrower)
			return any;
	}
	address = bytes(ctx, address_at, has_16 ? 16 : 4);
	if (!address)
		return 0;
	__builtin_memcpy(key->address, address, has_16 ? 16 : 4);
	rule = map_lookup(&keys, key);
	return rule ? found_key(rule) : any;
}

VERIFIED_ALONE __u64 find_key(struct xdp_md *ctx, struct layout *layout)
{
	struct key key = {};
	const __u8 *ports;
	__u32 l4, ip;

	if (!layout)
		return 0;
	l4 = layout->position[BASE_L4];
	ip = layout->position[BASE_IP];
	key.version = layout->kind >> 8;
	key.protocol = layout->kind;
	if ((key.protocol != TCP && key.protocol != UDP) || l4 == ABSENT || l4 + 4 > layout->limit[BASE_L4])
		return 0;
	ports = bytes(ctx, l4, 4);
	if (!ports)
		return 0;
	__builtin_memcpy(key.port, ports + 2, sizeof(key.port));
	return key.version == 4 ? rule_of(ctx, &key, ip + 16, 0) : rule_of(ctx, &key, ip + 24, 1);
}

// The frame is plain: see plain_key.
#define PLAIN (1ull << 62)

// For a whole IPv4 packet with TCP or UDP, without VLAN tags and options: what find_key returns, with PLAIN set. Otherwise 0. It
// calls no function but the helper. A return costs 8 ns on AMD processors with the kernel's "Safe RET".
INLINE __u64 plain_key(const struct xdp_md *ctx)
{
	enum { START = 14, L4 = START + 20 };
	const __u8 *frame = bytes(ctx, 0, L4 + 4);
	struct key key = { .version = 4 };
	__u32 total_length;

	if (!frame || *(const __u16 *)(frame + 12) != big16(ETHERTYPE_IPV4) || frame[START] != 0x45)
		return 0;
	total_length = big16(*(const __u16 *)(frame + START + 2));
	// A fragment's ports are not where they seem to be. See parse_ipv4.
	if (total_length < 24 || total_length > ctx->data_end - ctx->data - START ||
	    *(const __u16 *)(frame + START + 6) & big16(0x3fff))
		return 0;
	key.protocol = frame[START + 9];
	if (key.protocol != TCP && key.protocol != UDP)
		return 0;
	__builtin_memcpy(key.port, frame + L4 + 2, sizeof(key.port));
	return PLAIN | rule_of(ctx, &key, START + 16, 0);
}

// Number of tests whose rules go before the key, or all if there is none. A number to the verifier, whether there is a key or not.
VERIFIED_ALONE __u32 tests_before(__u64 key, __u32 count)
{
	return key ? tests_before_key(key) : count;
}

// One more than the target of the frame, or 0 when no rule matches it. `key` is what plain_key returned.
VERIFIED_ALONE __u32 match(struct xdp_md *ctx, struct table *table, __u64 key)
{
	struct layout layout = {};
	__u32 holds = 1, end;

	if (!table)
		return 0;
	parse(ctx, &layout);
	if (!(key & PLAIN))
		key = find_key(ctx, &layout);
	key &= ~PLAIN;
	end = tests_before(key, table->count);
	for (__u32 i = 0; i < MAX_TESTS; i++) {
		struct test *test = &table->tests[i];
		__u32 flags = test->flags;

		if (i >= end)
			break;
		if (holds) {
			__u64 word = FOUND | layout.kind;

			if (test->base != BASE_KIND) {
				__u32 position = layout.position[test->base & 3];
				__u32 limit = layout.limit[test->base & 3];

				word = position == ABSENT ? 0 : load_word(ctx, position + test->offset, limit, flags);
			}
			__u32 masked = (__u32)word & test->mask;
			holds = (word & FOUND) && masked >= test->min && masked <= test->max;
		}
		if (flags & END_OF_RULE) {
			if (holds)
				return table->targets[i] + 1;
			holds = 1;
		}
	}
	return key ? (__u32)key + 1 : 0;
}

// As match. The table is read before the keys: see RuleMaps::set_rules in afxdp/rule_maps.rs.
INLINE __u32 decide(struct xdp_md *ctx)
{
	__u32 zero = 0;
	void *inner = map_lookup(&rules, &zero);
	struct table *table;
	__u64 key;

	if (!inner)
		return 0;
	table = map_lookup(inner, &zero);
	if (!table)
		return 0;
	key = plain_key(ctx);
	if (key & FOUND_KEY ? !tests_before_key(key) : key & PLAIN && !table->count)
		return key & FOUND_KEY ? (__u32)key + 1 : 0;
	return match(ctx, table, key);
}

// The tag in the 8 bytes before the frame, if there is room for one.
INLINE int tag_of(const struct xdp_md *ctx, __u64 *tag)
{
	const __u64 *meta = (const __u64 *)(long)ctx->data_meta;

	if ((const void *)(meta + 1) > (const void *)(long)ctx->data)
		return 0;
	*tag = *meta;
	return 1;
}

// Whether user space returned the frame. Its tag is no longer metadata, but still lies before the frame.
VERIFIED_ALONE int returns(struct xdp_md *ctx)
{
	__u64 tag = 0;

	if (adjust_meta(ctx, -(int)sizeof(tag)))
		return 0;
	tag_of(ctx, &tag);
	adjust_meta(ctx, sizeof(tag));
	return map_delete(&returning, &tag) == 0;
}

INLINE int filter(struct xdp_md *ctx, int generic)
{
	__u64 length = ctx->data_end - ctx->data;
	__u32 zero = 0;
	struct counters *count = map_lookup(&counters, &zero);
	__u32 found;

	// The verifier does not let the compiler keep half of a pointer on the stack.
	asm volatile("" : "+r"(length));
	if (!count)
		return XDP_PASS;
	found = decide(ctx);
	if (found) {
		if (generic && returns(ctx))
			return XDP_PASS;
		if (found > 1) {
			count->called++;
			tail_call(ctx, &programs, found - 2);
			count->called--; // there is no such program
		}
		long action = redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);

		if (action == XDP_REDIRECT) {
			count->redirected++;
			count->redirected_bytes += length;
			return action;
		}
		count->unserved++;
	}
	count->passed++;
	count->passed_bytes += length;
	return XDP_PASS;
}

SEC("xdp") int spin_filter(struct xdp_md *ctx)
{
	return filter(ctx, 0);
}

// The program for generic mode.
SEC("xdp") int spin_filter_generic(struct xdp_md *ctx)
{
	return filter(ctx, 1);
}

// For BPF_PROG_TEST_RUN on live frames: passes all frames and keeps their tags.
SEC("xdp") int spin_pass(struct xdp_md *ctx)
{
	__u8 there = 1;
	__u64 tag;

	if (tag_of(ctx, &tag))
		map_update(&returning, &tag, &there, BPF_ANY);
	return XDP_PASS;
}

// Only the decision, for BPF_PROG_TEST_RUN: no socket is bound to the apparent queue of a test frame.
SEC("xdp") int spin_decide(struct xdp_md *ctx)
{
	return decide(ctx);
}

char dual_license[] SEC("license") = "Dual MIT/GPL";
