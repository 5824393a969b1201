/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The bucket table: find a key's slot, or claim one for it.
 *
 * A slot whose TAT lies in the past is a full bucket, worth nothing: it is
 * free. The claim protocol, so that one key never gets two buckets:
 *
 *   1. put tag | RESERVED into the slot by compare-and-swap;
 *   2. read the TAT again: if the old owner was charged meanwhile, give back;
 *   3. read the line again: if the key has a published slot, or a lower slot
 *      is being claimed for it, free our own; if a higher one is being
 *      claimed, wait until it is published or freed;
 *   4. write the TAT, publish the tag by exchange.
 *
 * Of two claims for one key each sees the other's RESERVED or is seen by it.
 * Who charges a TAT reads the tag afterwards (take.h), so that a charge never
 * gets lost with the slot.
 */
#pragma once

#include "bucket.h"
#include "maps.h"

volatile const __u32 line_mask;		/* lines in the table - 1, a power of two - 1 */
volatile const __u64 seed0, seed1, seed2, seed3;

#define CLAIM_TRIES	8
#define CLAIM_WAITS	256	/* reads: some microseconds */
#define CLAIM_LOOKS	3	/* waits for one claim after the other */

/* Answers beside a way, which is 0 to WAYS - 1. */
#define WAY_CLAIMED	4	/* a new bucket */
#define WAY_EVICTED	8	/* in place of a live one */
#define WAY_NONE	-1	/* the key has no slot */
#define WAY_FULL	-2	/* every slot is protected */
#define WAY_BUSY	-3	/* being claimed, or lost too many races */

/* A keyed mix; the multipliers are secret, so that nobody can aim at a line. */
static __always_inline __u64 table_hash(__u64 hi, __u64 lo)
{
	__u64 h = (hi ^ seed0) * seed1;

	h ^= h >> 32;
	h = (h ^ lo) * seed2;
	return h ^ (h >> 29);
}

static __always_inline __u64 table_tag(__u64 hash, __u64 salt, __u64 kind)
{
	__u64 h = (hash ^ salt) * seed3;

	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 29;
	h &= ~(TAG_FLAGS | TAG_KIND);
	h |= kind << TAG_KIND_SHIFT;
	/* 0 is an empty slot */
	return h ? h : 1ULL << 63;
}

/* The line follows from the tag alone: a table can be resized without keys. */
static __always_inline __u32 table_index(__u64 tag)
{
	return (tag >> 32) & line_mask;
}

/* The way of tag's slot, WAY_NONE, or WAY_BUSY while it is being claimed. */
static __always_inline int table_find(struct line *line, __u64 tag)
{
	int w, busy = WAY_NONE;

#pragma unroll
	for (w = 0; w < WAYS; w++) {
		__u64 t = READ(line->way[w].tag) & ~TAG_DENIED;

		if (t == tag)
			return w;
		if (t == (tag | TAG_RESERVED))
			busy = WAY_BUSY;
	}
	return busy;
}

static __always_inline bool slot_free(__u64 tag, __u64 tat, __u64 now)
{
	return tag == 0 || (!(tag & TAG_RESERVED) && (__s64)(tat - now) <= 0);
}

static __always_inline bool slot_evictable(__u64 tag)
{
	return !(tag & TAG_FLAGS) &&
	       (tag & TAG_KIND) != (__u64)SLOT_BLOCK << TAG_KIND_SHIFT;
}

/* Waits until another CPU's claim for tag is published or freed. Returns the
 * slot's tag without TAG_DENIED.
 */
__noinline __u64 claim_wait(__u32 index, __u32 way, __u64 claimed)
{
	struct line *line = bpf_map_lookup_elem(&buckets, &index);
	__u64 t = 0;
	int i;

	if (!line)
		return 0;
	for (i = 0; i < CLAIM_WAITS; i++) {
		t = READ(line->way[way & (WAYS - 1)].tag) & ~TAG_DENIED;
		if (t != claimed)
			break;
	}
	return t;
}

/* Looks for tag's slot until no claim for it is under way. */
static __always_inline int table_wait(struct line *line, __u32 index, __u64 tag)
{
	int way = WAY_BUSY, i;
	__u32 w;

	for (i = 0; i < CLAIM_LOOKS; i++) {
		way = table_find(line, tag);
		if (way != WAY_BUSY)
			return way;
		for (w = 0; w < WAYS - 1; w++)
			if ((READ(line->way[w].tag) & ~TAG_DENIED) == (tag | TAG_RESERVED))
				break;
		claim_wait(index, w, tag | TAG_RESERVED);
	}
	return way;
}

/* Step 3 of a claim: the way that has the key instead of ours, or ours, or
 * WAY_BUSY where a lower claim, or one that takes too long, is in the way.
 */
static __always_inline int claim_rival(struct line *line, __u32 index, __u32 own,
				       __u64 tag)
{
	__u32 w;
	__u64 t;

	for (w = 0; w < WAYS; w++) {
		if (w == own)
			continue;
		t = READ(line->way[w].tag) & ~TAG_DENIED;
		if (t == (tag | TAG_RESERVED) && w > own)
			t = claim_wait(index, w, t);
		if (t == tag)
			return w;
		if (t == (tag | TAG_RESERVED))
			return WAY_BUSY;
	}
	return own;
}

/* Claims way own, which held tag old; the bucket starts with tat. Returns the
 * key's way, or WAY_BUSY: look again.
 */
static __always_inline int claim_slot(struct line *line, __u32 index, __u32 own,
				      __u64 old, bool was_free, __u64 tag, __u64 now,
				      __u64 tat)
{
	struct slot *slot = &line->way[own & (WAYS - 1)];
	int way;

	if (__sync_val_compare_and_swap(&slot->tag, old, tag | TAG_RESERVED) != old)
		return WAY_BUSY;
	if (was_free && old && (__s64)(READ(slot->tat) - now) > 0) {
		__sync_lock_test_and_set(&slot->tag, old);
		return WAY_BUSY;
	}
	way = claim_rival(line, index, own, tag);
	if (way != own) {
		__sync_lock_test_and_set(&slot->tag, 0);
		return way;
	}
	WRITE(slot->tat, tat);
	__sync_lock_test_and_set(&slot->tag, tag);
	return way;
}

/* Chooses a slot of the line for a newcomer: a free one, else the live one
 * that is worth least and has never refused. Returns its way and its tag, or
 * WAY_FULL.
 */
static __always_inline int choose_slot(struct line *line, __u64 now, __u64 *old,
				       bool *was_free)
{
	__u64 t, tat, least = ~0ULL;
	int own = WAY_FULL, w;

	*was_free = false;
	for (w = 0; w < WAYS; w++) {
		t = READ(line->way[w].tag);
		tat = READ(line->way[w].tat);
		if (slot_free(t, tat, now)) {
			*old = t;
			*was_free = true;
			return w;
		}
		if (slot_evictable(t) && tat - now < least) {
			own = w;
			*old = t;
			least = tat - now;
		}
	}
	return own;
}

/* One try to claim a slot in a line: as table_claim, or WAY_NONE or WAY_BUSY:
 * try again.
 */
static __always_inline int claim_once(struct line *line, __u32 index, __u64 tag, __u64 now,
				      __u64 tat)
{
	bool was_free;
	__u64 old = 0;
	int own, way;

	own = choose_slot(line, now, &old, &was_free);
	if (own < 0)
		return own;
	way = claim_slot(line, index, own, old, was_free, tag, now, tat);
	if (way == own)
		return way | (was_free ? WAY_CLAIMED : WAY_CLAIMED | WAY_EVICTED);
	return way < 0 ? table_wait(line, index, tag) : way;
}

__noinline int claim_again(__u32 index, __u64 tag, __u64 now, __u64 tat)
{
	struct line *line = bpf_map_lookup_elem(&buckets, &index);

	return line ? claim_once(line, index, tag, now, tat) : WAY_BUSY;
}

/* Claims a slot in line index for tag, which had none when the caller looked;
 * the bucket starts with tat. Returns its way, with WAY_CLAIMED and
 * WAY_EVICTED where it is a new one, or WAY_FULL or WAY_BUSY. A global
 * function: the verifier walks it once; further tries are a call, so that it
 * walks what they do once too.
 */
__noinline int table_claim(__u32 index, __u64 tag, __u64 now, __u64 tat)
{
	struct line *line = bpf_map_lookup_elem(&buckets, &index);
	int try, way;

	if (!line)
		return WAY_BUSY;
	way = claim_once(line, index, tag, now, tat);
	for (try = 1; try < CLAIM_TRIES && (way == WAY_NONE || way == WAY_BUSY); try++)
		way = claim_again(index, tag, now, tat);
	return way == WAY_NONE ? WAY_BUSY : way;
}
