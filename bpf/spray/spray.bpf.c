// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The network gate behind a source of sources: each run of a program writes
 * another IPv4 source into the frame and judges it. For benchmarks, and for
 * tests in which CPUs race.
 */

#ifdef BUCKETS_LRU
#include "lru.h"
#endif
#include "../headgate.bpf.c"

#define SPRAY_RANDOM	0	/* one of `sources`, at random */
#define SPRAY_SEQUENCE	1	/* one after the other, each CPU from its own start */

struct spray_setting {
	__u64 sources;
	__u64 mode;
};

struct spray_state {
	__u64 random;
	__u64 next;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spray_setting);
} spray_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spray_state);
} spray_states SEC(".maps");

/* xorshift64 (Marsaglia, 2003) */
static __always_inline __u64 next_random(struct spray_state *state)
{
	__u64 x = state->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	state->random = x;
	return x;
}

static __always_inline bool next_source(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct spray_setting *setting;
	struct spray_state *state;
	__u32 zero = 0, host;

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return false;
	setting = bpf_map_lookup_elem(&spray_settings, &zero);
	state = bpf_map_lookup_elem(&spray_states, &zero);
	if (!setting || !state)
		return false;
	if (setting->mode == SPRAY_RANDOM)
		host = ((next_random(state) >> 32) * setting->sources) >> 32;
	else
		host = state->next++;
	ip->saddr = bpf_htonl(0x0a000000 + host);
	return true;
}

/* What the spraying itself costs. */
SEC("xdp")
int spray_bare(struct xdp_md *ctx)
{
	return next_source(ctx) ? XDP_DROP : XDP_ABORTED;
}

SEC("xdp")
int spray_gate(struct xdp_md *ctx)
{
	return next_source(ctx) ? gate(ctx) : XDP_ABORTED;
}
