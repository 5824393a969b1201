/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Taking from the buckets of a packet: all of them or none.
 *
 * Read all; if one refuses, nothing is charged. Then charge in order; if one
 * refuses now, undo those before it by compare-and-swap from the very value
 * written. Where that fails the charge stays: too strict, never too loose.
 */
#pragma once

#include "clock.h"
#include "match.h"
#include "table.h"

#define TAKE_TRIES	2	/* a slot lost in mid-take is looked up again */
#define CHARGE_TRIES	32

enum take {
	TAKE_OK,
	TAKE_REFUSED,
	TAKE_LOST,	/* the slot went to another key: look again */
	TAKE_BUSY,	/* lost too many races */
	TAKE_UNKNOWN,	/* what unknown sources take together is spent */
};

/* The source, cut to the prefix that makes one key. */
static __always_inline void cut_source(const struct packet *p, const struct limit *limit,
				       __u64 *hi, __u64 *lo)
{
	if (!(p->shape & SHAPE_IPV6)) {
		__u8 host = (32 - limit->bits4) & 31;

		*lo = *lo >> host << host;
	} else if (limit->bits6 <= 64) {
		__u8 host = (64 - limit->bits6) & 63;

		*hi = *hi >> host << host;
		*lo = 0;
	}
}

static __always_inline __u64 limit_hash(struct xdp_md *ctx, const struct packet *p,
					const struct limit *limit)
{
	__u64 hi = p->hi, lo = p->lo, to_hi = 0, to_lo = 0, hash = 0;

	if (limit->per == PER_SOURCE && p->hashed && limit->bits4 == 32 && limit->bits6 == 64)
		return p->hash;
	if (limit->per & PER_SOURCE) {
		/* what the link itself speaks has no other name than the sender's */
		if (p->shape & SHAPE_VITAL)
			return table_hash(p->link, 1);
		cut_source(p, limit, &hi, &lo);
		hash = table_hash(hi, lo);
	}
	if (limit->per & PER_DESTINATION) {
		load_destination(ctx, p, &to_hi, &to_lo);
		hash = table_hash(to_hi ^ (hash << 1 | hash >> 63), to_lo);
	}
	return hash;
}

static __always_inline struct slot *taking_slot(const struct taking *t)
{
	struct overflow *overflow;
	struct line *line;
	__u32 index;

	if (t->place & OVERFLOW) {
		index = t->place & ~OVERFLOW;
		overflow = bpf_map_lookup_elem(&overflows, &index);
		return overflow ? &overflow->slot : NULL;
	}
	index = t->place / WAYS;
	line = bpf_map_lookup_elem(&buckets, &index);
	return line ? &line->way[t->place % WAYS] : NULL;
}

/* Is the slot still the key's? Then it refuses; the first time it does, it is
 * marked, and later refusals only read.
 */
static __always_inline enum take slot_refuses(struct slot *slot, const struct taking *t)
{
	__u64 tag = READ(slot->tag);

	if (t->place & OVERFLOW)
		return TAKE_REFUSED;
	if (tag == (t->tag | TAG_DENIED))
		return TAKE_REFUSED;
	if (tag != t->tag)
		return TAKE_LOST;
	__sync_fetch_and_or(&slot->tag, TAG_DENIED);
	return TAKE_REFUSED;
}

static __always_inline void taking_init(struct taking *t, struct xdp_md *ctx,
					const struct packet *p, const struct limit *limit)
{
	t->length = limit->flags & LIMIT_BYTES ? p->length : 1;
	t->tag = table_tag(limit_hash(ctx, p, limit), limit->salt, SLOT_RULE);
	t->cost = bucket_cost(t->length, limit->mult, limit->shift);
	t->burst = limit->burst;
	t->charged = false;
	t->over = false;
	t->refused = false;
	t->unknown = 0;
	t->place = 0;
	t->counter = limit->counter;
}

static __always_inline struct extra *limit_extra(const struct limit *limit,
						 __u32 generation)
{
	__u32 index = generation * MAX_EXTRAS + (limit->extra & (MAX_EXTRAS - 1));

	if (!limit->extra)
		return NULL;
	return bpf_map_lookup_elem(&extras, &index);
}

static __always_inline struct source_key source_key(const struct packet *p)
{
	struct source_key key = { .hi = p->hi, .lo = p->lo };

	if (p->shape & SHAPE_IPV6)
		key.lo = 0;
	return key;
}

/* Takes from a bucket outside the table. */
static __always_inline bool take_shared(struct slot *slot, __u64 now, __u64 cost,
					__u64 burst)
{
	__u64 tat = READ(slot->tat), next, seen;
	int try;

	for (try = 0; try < CHARGE_TRIES; try++) {
		if (!bucket_take(tat, now, cost, burst, &next))
			return false;
		seen = __sync_val_compare_and_swap(&slot->tat, tat, next);
		if (seen == tat)
			return true;
		tat = seen;
	}
	return false;
}

/* A source without a bucket takes from what unknown sources have together,
 * unless somebody vouches for it: TAKE_OK to go on, or TAKE_UNKNOWN.
 */
__noinline int take_unknown(struct taking *t, const struct packet *p,
			    const struct limit *limit, __u32 generation, __u64 now)
{
	struct overflow *shared;
	struct source_key key;
	struct extra *extra;
	struct line *line;
	__u64 cost, *end;
	__u32 index;

	if (!t || !p || !limit)
		return TAKE_OK;
	extra = limit_extra(limit, generation & 1);
	if (!extra || !extra->unknown_mult)
		return TAKE_OK;
	index = table_index(t->tag);
	line = bpf_map_lookup_elem(&buckets, &index);
	if (!line || table_find(line, t->tag) >= 0)
		return TAKE_OK;
	index = limit->counter;
	shared = bpf_map_lookup_elem(&overflows, &index);
	if (!shared)
		return TAKE_OK;
	cost = bucket_cost(t->length, extra->unknown_mult, extra->unknown_shift);
	if (take_shared(&shared->unknown, now, cost, extra->unknown_burst)) {
		t->unknown = cost;
		return TAKE_OK;
	}
	key = source_key(p);
	end = bpf_map_lookup_elem(&vouches, &key);
	return end && (__s64)(*end - now) > 0 ? TAKE_OK : TAKE_UNKNOWN;
}

/* Turns to the overflow bucket: the table has no slot for the key. */
static __always_inline void taking_overflow(struct taking *t, const struct limit *limit)
{
	t->place = OVERFLOW | limit->counter;
	t->tag = 0;
	t->cost = bucket_cost(t->length, limit->overflow_mult, limit->overflow_shift);
	t->burst = limit->overflow_burst;
	/* where the rule caps unknown sources, that has been taken from already */
	if (t->unknown)
		t->cost = 0;
}

/* Finds or claims the bucket and says whether it admits the packet. A bucket
 * that was just claimed is charged already.
 */
static __always_inline enum take take_read(struct taking *t, const struct limit *limit,
					   struct cpu *cpu, __u64 now)
{
	__u32 index = table_index(t->tag);
	struct slot *slot;
	struct line *line;
	__u64 next;
	int way;

	/* more than the burst fits into no bucket: claim none */
	if (t->cost > t->burst)
		return TAKE_REFUSED;
	line = bpf_map_lookup_elem(&buckets, &index);
	if (!line)
		return TAKE_BUSY;
	way = table_find(line, t->tag);
	if (way < 0)
		way = table_claim(index, t->tag, now, now + t->cost);
	if (way == WAY_BUSY)
		return TAKE_BUSY;
	if (way == WAY_FULL) {
		cpu->overflowed++;
		taking_overflow(t, limit);
	} else {
		t->place = index * WAYS + (way & (WAYS - 1));
		if (way & WAY_EVICTED)
			cpu->evicted_live++;
		if (way & WAY_CLAIMED) {
			t->before = now;
			t->tat = now + t->cost;
			t->charged = true;
			return TAKE_OK;
		}
	}
	slot = taking_slot(t);
	if (!slot)
		return TAKE_BUSY;
	t->tat = READ(slot->tat);
	if (bucket_take(t->tat, now, t->cost, t->burst, &next))
		return TAKE_OK;
	return slot_refuses(slot, t);
}

/* What nearly always happens: the key has its slot, and the bucket has room.
 * False: take the long way.
 */
static __always_inline bool take_reads(struct taking *t, __u64 now)
{
	__u32 index = table_index(t->tag);
	struct line *line = bpf_map_lookup_elem(&buckets, &index);
	__u64 next;
	int way;

	if (!line)
		return false;
	way = table_find(line, t->tag);
	if (way < 0)
		return false;
	t->place = index * WAYS + (way & (WAYS - 1));
	t->tat = READ(line->way[way & (WAYS - 1)].tat);
	return bucket_take(t->tat, now, t->cost, t->burst, &next);
}

/* Likewise: nobody else has charged the bucket since it was read. */
static __always_inline bool take_charges(struct taking *t, struct cpu *cpu, __u64 now)
{
	struct slot *slot = taking_slot(t);
	__u64 next;

	if (!slot || !bucket_take(t->tat, now, t->cost, t->burst, &next) ||
	    __sync_val_compare_and_swap(&slot->tat, t->tat, next) != t->tat)
		return false;
	if ((READ(slot->tag) & ~TAG_DENIED) != t->tag) {
		cpu->recharged++;
		return false;
	}
	t->before = t->tat;
	t->tat = next;
	t->charged = true;
	return true;
}

/* Charges a bucket that was read. The tag is read again after the charge:
 * whoever claims the slot reads the TAT after the tag, so one of the two sees
 * the other, and no charge is lost.
 */
static __always_inline enum take take_charge(struct taking *t, struct cpu *cpu, __u64 now)
{
	struct slot *slot = taking_slot(t);
	__u64 next, seen;
	int try;

	if (!slot)
		return TAKE_BUSY;
	for (try = 0; try < CHARGE_TRIES; try++) {
		if (!bucket_take(t->tat, now, t->cost, t->burst, &next))
			return slot_refuses(slot, t);
		seen = __sync_val_compare_and_swap(&slot->tat, t->tat, next);
		if (seen == t->tat) {
			t->before = seen;
			t->tat = next;
			t->charged = true;
			if ((READ(slot->tag) & ~TAG_DENIED) == t->tag)
				return TAKE_OK;
			cpu->recharged++;
			t->charged = false;
			return TAKE_LOST;
		}
		t->tat = seen;
	}
	return TAKE_BUSY;
}

/* Gives back what was taken of the unknown sources' together. Whoever has been
 * charged meanwhile stands on top of it.
 */
static __always_inline void take_unknown_back(const struct taking *t)
{
	struct overflow *shared;
	__u32 index = t->counter;

	if (!t->unknown)
		return;
	shared = bpf_map_lookup_elem(&overflows, &index);
	if (shared)
		__sync_fetch_and_add(&shared->unknown.tat, -t->unknown);
}

static __always_inline void take_undo(const struct taking *t, struct cpu *cpu)
{
	struct slot *slot = taking_slot(t);

	take_unknown_back(t);

	if (slot && t->charged &&
	    __sync_val_compare_and_swap(&slot->tat, t->tat, t->before) != t->tat)
		cpu->undo_failed++;
}

/* Global functions: the verifier walks each once, however many limits meet. */

/* Read and charge, with all that may come between. */
__noinline int take_slow(struct taking *t, const struct limit *limit, struct cpu *cpu,
			 __u64 now)
{
	enum take taken = TAKE_LOST;
	int try;

	if (!t || !limit || !cpu)
		return TAKE_BUSY;
	for (try = 0; try < TAKE_TRIES && taken == TAKE_LOST; try++) {
		taken = take_read(t, limit, cpu, now);
		if (taken == TAKE_OK && !t->charged)
			taken = take_charge(t, cpu, now);
	}
	return taken;
}

/* Phase one of several limits. */
static __always_inline enum take take_first(struct taking *t, const struct limit *limit,
					    struct cpu *cpu, __u64 now)
{
	enum take taken = TAKE_LOST;
	int try;

	for (try = 0; try < TAKE_TRIES && taken == TAKE_LOST; try++)
		taken = take_read(t, limit, cpu, now);
	return taken;
}

/* Phase two. */
static __always_inline enum take take_second(struct taking *t, const struct limit *limit,
					     struct cpu *cpu, __u64 now)
{
	enum take taken;

	if (t->charged)
		return TAKE_OK;
	taken = take_charge(t, cpu, now);
	return taken == TAKE_LOST ? take_slow(t, limit, cpu, now) : taken;
}

/* The packet's only limit, which most packets have. What nearly always happens
 * is here in line: the key has its slot, and the first swap is not disturbed.
 */
static __always_inline enum take take_one(struct taking *t, struct xdp_md *ctx,
					  const struct packet *p, const struct limit *limit,
					  struct cpu *cpu, __u32 generation, __u64 now)
{
	struct line *line;
	struct slot *slot;
	__u64 next, tag;
	__u32 index;
	int way;

	taking_init(t, ctx, p, limit);
	if (limit->extra && take_unknown(t, p, limit, generation, now) == TAKE_UNKNOWN)
		return TAKE_UNKNOWN;
	index = table_index(t->tag);
	line = bpf_map_lookup_elem(&buckets, &index);
	if (!line)
		return TAKE_BUSY;
	way = table_find(line, t->tag);
	if (way < 0 && t->cost <= t->burst) {
		way = table_claim(index, t->tag, now, now + t->cost);
		if (way >= 0 && way & WAY_CLAIMED) {
			if (way & WAY_EVICTED)
				cpu->evicted_live++;
			return TAKE_OK;
		}
	}
	if (way < 0)
		return take_slow(t, limit, cpu, now);
	slot = &line->way[way & (WAYS - 1)];
	t->tat = READ(slot->tat);
	if (!bucket_take(t->tat, now, t->cost, t->burst, &next)) {
		tag = READ(slot->tag);
		if (tag == (t->tag | TAG_DENIED))
			return TAKE_REFUSED;
	} else if (__sync_val_compare_and_swap(&slot->tat, t->tat, next) == t->tat) {
		tag = READ(slot->tag) & ~TAG_DENIED;
		if (tag == t->tag)
			return TAKE_OK;
		cpu->recharged++;
	}
	return take_slow(t, limit, cpu, now);
}
