/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The same gate with its buckets in the kernel's LRU hash, to compare with. */
#pragma once

#include "../take.h"

struct lru_key {
	__u64 salt;
	__u64 hi;
	__u64 lo;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1048576);
	__type(key, struct lru_key);
	__type(value, __u64);
} lru_buckets SEC(".maps");

static __always_inline enum take take_lru(struct taking *t, struct xdp_md *ctx,
					  const struct packet *p, const struct limit *limit,
					  struct cpu *cpu, __u32 generation, __u64 now)
{
	struct lru_key key = { .salt = limit->salt, .hi = p->hi, .lo = p->lo };
	__u64 *tat, next, seen, old;
	int try;

	t->cost = bucket_cost(1, limit->mult, limit->shift);
	t->burst = limit->burst;
	tat = bpf_map_lookup_elem(&lru_buckets, &key);
	if (!tat) {
		next = now + t->cost;
		bpf_map_update_elem(&lru_buckets, &key, &next, BPF_NOEXIST);
		return TAKE_OK;
	}
	old = READ(*tat);
	for (try = 0; try < 8; try++) {
		if (!bucket_take(old, now, t->cost, t->burst, &next))
			return TAKE_REFUSED;
		seen = __sync_val_compare_and_swap(tat, old, next);
		if (seen == old)
			return TAKE_OK;
		old = seen;
	}
	return TAKE_BUSY;
}

#define take_one take_lru
