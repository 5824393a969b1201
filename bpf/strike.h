/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What a rule's then does: refusals are strikes, too many of them block the
 * source. Strikes and blocks are slots of the bucket table, so all of it works
 * with nobody there to look; one event a block tells the daemon.
 */
#pragma once

#include "take.h"

/* One strike more. True if there were too many. */
static __always_inline bool strike_counts(__u64 hash, const struct extra *extra, __u64 now)
{
	__u64 tag = table_tag(hash, extra->strike_salt, SLOT_STRIKE);
	__u32 index = table_index(tag);
	struct line *line = bpf_map_lookup_elem(&buckets, &index);
	int way;

	if (!line)
		return false;
	way = table_find(line, tag);
	if (way < 0)
		way = table_claim(index, tag, now, now + extra->strike_cost);
	if (way < 0 || way & WAY_CLAIMED)
		return false;
	return !take_shared(&line->way[way & (WAYS - 1)], now, extra->strike_cost,
			    extra->strike_burst);
}

/* Blocks the source until end. True if it was not blocked before. */
static __always_inline bool strike_blocks(__u64 tag, __u64 now, __u64 end)
{
	__u32 index = table_index(tag);
	struct line *line = bpf_map_lookup_elem(&buckets, &index);
	struct slot *slot;
	__u64 tat;
	int way;

	if (!line)
		return false;
	way = table_find(line, tag);
	if (way < 0)
		way = table_claim(index, tag, now, end);
	if (way < 0)
		return false;
	if (way & WAY_CLAIMED)
		return true;
	/* a block that has ended, or that another CPU has just set */
	slot = &line->way[way & (WAYS - 1)];
	tat = READ(slot->tat);
	if ((__s64)(tat - now) > 0 ||
	    __sync_val_compare_and_swap(&slot->tat, tat, end) != tat)
		return false;
	if ((READ(slot->tag) & ~TAG_DENIED) == tag)
		return true;
	/* the slot has just gone to another key, whose bucket this would empty */
	__sync_val_compare_and_swap(&slot->tat, end, now);
	return false;
}

static __always_inline __u64 block_tag(const struct packet *p, const struct plan *plan)
{
	struct source_key key = source_key(p);

	return table_tag(table_hash(key.hi, key.lo), plan->block_salt, SLOT_BLOCK);
}

/* A limit has refused a packet of a source. A global function: the verifier
 * walks it once.
 */
__noinline int strike(const struct packet *p, const struct limit *limit,
		      __u32 generation, __u64 now)
{
	struct event event = {};
	struct extra *extra;
	struct plan *plan;
	__u64 hi, lo;

	if (!p || !limit)
		return 0;
	generation &= 1;
	extra = limit_extra(limit, generation);
	plan = bpf_map_lookup_elem(&plans, &generation);
	if (!extra || !extra->strike_cost || !plan)
		return 0;
	hi = p->hi;
	lo = p->lo;
	cut_source(p, limit, &hi, &lo);
	if (!strike_counts(table_hash(hi, lo), extra, now))
		return 0;
	event.end = now + extra->block;
	if (!strike_blocks(block_tag(p, plan), now, event.end))
		return 0;
	event.source = source_key(p);
	event.limit = limit->id;
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	return 0;
}

/* True while a then blocks the source. */
static __always_inline bool struck(const struct packet *p, const struct plan *plan,
				   __u64 now)
{
	struct line *line;
	__u32 index;
	__u64 tag;
	int way;

	if (!(plan->flags & PLAN_BLOCKS))
		return false;
	tag = block_tag(p, plan);
	index = table_index(tag);
	line = bpf_map_lookup_elem(&buckets, &index);
	if (!line)
		return false;
	way = table_find(line, tag);
	return way >= 0 && (__s64)(READ(line->way[way & (WAYS - 1)].tat) - now) > 0;
}
