/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The longest prefix that holds an address, of a million as fast as of ten.
 *
 * Each family has a hash of all its prefixes, in lines of PREFIX_WAYS places,
 * and roots, which say by an address' first bits which lengths are worth a
 * probe: of IPv4, by the first 16 bits, the lengths beyond 16 that are in use
 * there and the one longest up to 16; of IPv6, by a hash of the first 32 bits,
 * the lengths from 33 to 64. The few lengths up to 32 and beyond 64 of IPv6 are
 * in the control entry. Most addresses find nothing in their root, or one
 * length. Probes do not wait for each other's memory, as the steps of a trie do.
 *
 * A length is one bit, that of its last address bit: the lowest bit of a set is
 * the longest length, and its negative the mask that leaves the prefix.
 *
 * Go writes, with the record first, then the key, then the root, each by one
 * store. A place that was given up is not used again before all packets in
 * flight are done, so whoever has seen a key reads the record that goes with it.
 */
#pragma once

#include "table.h"

volatile const __u32 prefix4_mask, prefix6_mask;	/* lines - 1 */

/* One address has at most so many lengths worth a probe: 17 to 32 and one more;
 * all of IPv6.
 */
#define PROBES4		17
#define PROBES6		128

/* A line may spill into the ones that follow it. */
#define PREFIX_HOPS	16

/* A key of IPv4 is the prefix and its length's bit: no two are the same. */
static __always_inline __u64 prefix4_name(__u32 address, __u64 length)
{
	return ((__u64)address & -length) << 1 | length;
}

static __always_inline __u64 prefix4_hash(__u64 key)
{
	__u64 h = (key ^ seed2) * seed3;

	h ^= h >> 32;
	return h * seed0 >> 32;
}

static __always_inline __u64 prefix6_hash(__u64 hi, __u64 lo, __u64 length)
{
	__u64 h = table_hash(hi ^ (length << 7 | length >> 57), lo) * seed3;

	return h ^ h >> 32;
}

static __always_inline __u32 root6_index(__u64 hi)
{
	__u64 h = (hi >> 32 ^ seed1) * seed3;

	return (h ^ h >> 32) * seed2 >> (64 - ROOT6_BITS);
}

/* The way whose key it is, or PREFIX_WAYS. */
static __always_inline __u32 prefix_way(const __u64 *keys, __u64 key)
{
	__u32 w;

#pragma unroll
	for (w = 0; w < PREFIX_WAYS - 1; w++)
		if (READ(keys[w]) == key)
			return w;
	return (READ(keys[w]) & ~KEY_SPILLED) == key ? w : PREFIX_WAYS;
}

/* Goes on where line index - 1, the first for the key, has spilled: the place of
 * the key, plus 1, or 0. Global functions: the verifier walks each once.
 */
__noinline int prefix4_spilled(__u32 index, __u64 key)
{
	struct prefix_line4 *line;
	__u32 hops, way;

	for (hops = 1; hops < PREFIX_HOPS; hops++) {
		index &= prefix4_mask;
		line = bpf_map_lookup_elem(&prefixes4, &index);
		if (!line)
			return 0;
		way = prefix_way(line->key, key);
		if (way < PREFIX_WAYS)
			return index * PREFIX_WAYS + way + 1;
		if (!(READ(line->key[PREFIX_WAYS - 1]) & KEY_SPILLED))
			return 0;
		index++;
	}
	return 0;
}

/* Where the longest of the prefixes is that hold the address, plus 1, or 0. */
__noinline int prefix4_find(__u32 address, __u64 lengths)
{
	struct prefix_line4 *line;
	__u64 key, length;
	__u32 i, way, index;
	int place;

	for (i = 0; i < PROBES4 && lengths; i++) {
		length = lengths & -lengths;
		lengths ^= length;
		key = prefix4_name(address, length);
		index = prefix4_hash(key) & prefix4_mask;
		line = bpf_map_lookup_elem(&prefixes4, &index);
		if (!line)
			return 0;
		way = prefix_way(line->key, key);
		if (way < PREFIX_WAYS)
			return index * PREFIX_WAYS + way + 1;
		if (READ(line->key[PREFIX_WAYS - 1]) & KEY_SPILLED) {
			place = prefix4_spilled(index + 1, key);
			if (place)
				return place;
		}
	}
	return 0;
}

/* One probe of IPv6: as prefix4_find. */
__noinline int prefix6_probe(__u64 hi, __u64 lo, __u64 length)
{
	__u64 key = prefix6_hash(hi, lo, length) | 1;
	struct prefix_line6 *line;
	__u32 hops, way, index = key >> 32;

	key &= ~KEY_SPILLED;
	for (hops = 0; hops < PREFIX_HOPS; hops++) {
		index &= prefix6_mask;
		line = bpf_map_lookup_elem(&prefixes6, &index);
		if (!line)
			return 0;
		way = prefix_way(line->key, key);
		if (way < PREFIX_WAYS && line->name[way].hi == hi && line->name[way].lo == lo)
			return index * PREFIX_WAYS + way + 1;
		if (!(READ(line->key[PREFIX_WAYS - 1]) & KEY_SPILLED))
			return 0;
		index++;
	}
	return 0;
}

/* As prefix4_find. low are the lengths beyond 64 bits, high the others but 0. */
__noinline int prefix6_find(__u64 hi, __u64 lo, __u64 low, __u64 high)
{
	__u64 length;
	__u32 i;
	int place;

	for (i = 0; i < PROBES6 && (low | high); i++) {
		if (low) {
			length = low & -low;
			low ^= length;
			place = prefix6_probe(hi, lo & -length, length);
		} else {
			length = high & -high;
			high ^= length;
			place = prefix6_probe(hi & -length, 0, length);
		}
		if (place)
			return place;
	}
	return 0;
}

static __always_inline struct prefix *prefix4_of(__u32 address, const struct control *control)
{
	__u32 root = address >> 16, index = root / ROOT_GROUP;
	struct prefix_line4 *line;
	struct root_group *group;
	__u64 lengths = 0;
	int place;

	if (!READ(control->prefixes4))
		return NULL;
	group = bpf_map_lookup_elem(&roots4, &index);
	if (group)
		lengths = READ(group->lengths[root % ROOT_GROUP]);
	if (READ(control->flags) & CONTROL_WHOLE4)
		lengths |= 1ULL << 32;
	if (!lengths)
		return NULL;
	place = prefix4_find(address, lengths);
	if (place <= 0)
		return NULL;
	index = (__u32)(place - 1) / PREFIX_WAYS;
	line = bpf_map_lookup_elem(&prefixes4, &index);
	return line ? &line->prefix[(place - 1) % PREFIX_WAYS] : NULL;
}

static __always_inline struct prefix *prefix6_of(__u64 hi, __u64 lo,
						 const struct control *control)
{
	__u32 root = root6_index(hi), index = root / ROOT_GROUP;
	struct prefix_line6 *line;
	struct root_group *group;
	__u64 high;
	int place;

	if (!READ(control->prefixes6))
		return NULL;
	group = bpf_map_lookup_elem(&roots6, &index);
	/* read here, it needs no place on the stack during the look-up */
	high = READ(control->short6);
	if (group)
		high |= READ(group->lengths[root % ROOT_GROUP]);
	place = prefix6_find(hi, lo, READ(control->long6), high);
	/* ::/0 has no bit left: it is the prefix of length 0 and name 0 */
	if (place <= 0 && READ(control->flags) & CONTROL_WHOLE6)
		place = prefix6_probe(0, 0, 0);
	if (place <= 0)
		return NULL;
	index = (__u32)(place - 1) / PREFIX_WAYS;
	line = bpf_map_lookup_elem(&prefixes6, &index);
	return line ? &line->prefix[(place - 1) % PREFIX_WAYS] : NULL;
}
