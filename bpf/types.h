/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Structs and enums that the program shares with Go. Their layout is the
 * layout of the pinned maps: whoever changes one raises LAYOUT_VERSION.
 */
#pragma once

#include <linux/types.h>
#include <stdbool.h>

#define LAYOUT_VERSION	3

/* Memory that another CPU or the daemon writes at the same time. */
#define READ(x)		(*(volatile typeof(x) *)&(x))
#define WRITE(x, v)	(*(volatile typeof(x) *)&(x) = (v))

#define WAYS		4	/* slots in a line of the bucket table */
#define SET_LIMITS	6	/* limits on a packet: 4, and 2 kept for rules with an end */
#define MAX_LIMITS	16384	/* in a generation */
#define MAX_SETS	65536	/* limit sets in a generation */
#define MAX_COUNTERS	16384	/* rules that have counters at the same time */
#define MAX_CELLS	(1U << 22)	/* of the crossing tables, in a generation */
#define CLASSES		32	/* classes in one entry of classes and crossings */

/* The top bits of a slot's tag are a keyed hash of (limit, key). */
#define TAG_RESERVED	(1ULL << 0)	/* being claimed: not yet a bucket */
#define TAG_DENIED	(1ULL << 1)	/* has refused: not evicted by newcomers */
#define TAG_KIND_SHIFT	2
#define TAG_KIND	(3ULL << TAG_KIND_SHIFT)
#define TAG_FLAGS	(TAG_RESERVED | TAG_DENIED)

enum slot_kind {
	SLOT_RULE,	/* a rule's bucket */
	SLOT_STRIKE,	/* counts refusals */
	SLOT_BLOCK,	/* TAT is the end of a block; evicted last */
	SLOT_FLOW,
};

/* TATs and all times here are in ticks: 1/64 ns since the table's epoch. */
struct slot {
	__u64 tag;
	__u64 tat;
};

struct line {
	struct slot way[WAYS];
};
_Static_assert(sizeof(struct line) == 64, "a line is one cache line");

/* What a bucket key is made of; none of them: one bucket for all. */
#define PER_SOURCE	(1 << 0)
#define PER_DESTINATION	(1 << 1)

#define LIMIT_WATCH	(1 << 0)
#define LIMIT_BYTES	(1 << 1)	/* length is the frame's, else 1 */

struct limit {
	__u64 salt;		/* keyed hash of kind and limit id */
	__u64 mult;		/* cost = (length * mult) >> shift, to nearest */
	__u64 burst;		/* ticks a bucket may be ahead */
	__u64 overflow_mult;	/* the same for the overflow bucket */
	__u64 overflow_burst;
	__u32 id;
	__u32 counter;		/* index in rule_counters and overflows */
	__u8 shift;
	__u8 overflow_shift;
	__u8 per;		/* PER_* */
	__u8 flags;
	__u8 bits4;		/* PER_SOURCE: prefix length that makes one key */
	__u8 bits6;
	__u16 extra;		/* index in extras of the same generation; 0: none */
	__u16 reserved[4];
};
_Static_assert(sizeof(struct limit) == 64, "a limit is one cache line");

#define MAX_EXTRAS	1024	/* limits with more to them, in a generation; 0 is none */

/* What only some limits have. */
struct extra {
	__u64 strike_salt;	/* then: of the source's strike bucket */
	__u64 strike_cost;	/* ticks a refusal; 0: no then */
	__u64 strike_burst;
	__u64 block;		/* ticks that a source is blocked */
	__u64 unknown_mult;	/* unknown: as in struct limit; 0: no unknown */
	__u64 unknown_burst;
	__u8 unknown_shift;
	__u8 reserved[15];
};
_Static_assert(sizeof(struct extra) == 64, "an extra is one cache line");

#define SET_EXACT	(1 << 0)	/* a burst is too small for the cached clock */

struct limit_set {
	__u16 n;
	__u16 flags;
	__u32 limits[SET_LIMITS];	/* indices in limits, of the same generation */
	__u32 reserved;
};
_Static_assert(sizeof(struct limit_set) == 32, "limit_set layout");

/* What a rule can ask of a packet. In each dimension a packet has a class:
 * packets of one class are matched by the same rules as far as that dimension
 * goes. A rule that asks in one dimension only is in the set of its classes.
 * Rules that ask in several are found by crossing: a state is led from
 * dimension to dimension by one table a step, and ends in a set. So the cost of
 * a packet depends on the dimensions in use, never on the number of rules.
 */
enum dimension {
	DIM_SOURCE,
	DIM_DESTINATION,
	DIM_SERVICE,		/* protocol, destination port, ICMP type */
	DIM_FLAGS,		/* of TCP */
	DIM_SOURCE_PORT,
	DIM_VLAN,
	DIM_INTERFACE,
	DIMENSIONS,
};

struct plan {
	__u32 used;			/* bit d: some rule asks in dimension d */
	__u32 crossed;			/* bit d: some rule of several dimensions does */
	__u32 sets[DIMENSIONS];		/* the set of class 0; others follow */
	__u32 crossed_sets;		/* the set of the last state 0 */
	__u32 width[DIMENSIONS];	/* classes in a row of the dimension's crossing */
	__u32 cells[DIMENSIONS];	/* where its crossing begins */
	__u32 flags;			/* PLAN_* */
	__u32 reserved;
	__u64 block_salt;		/* of sources' block slots */
	__u64 reserved2[2];
};
_Static_assert(sizeof(struct plan) == 128, "plan layout");

#define PLAN_BLOCKS	(1 << 0)	/* some rule blocks: look for block slots */

/* classes: the places of a generation, one after the other. */
#define PLACE_TCP		0		/* destination ports */
#define PLACE_UDP		65536
#define PLACE_PROTO		131072		/* protocols of packets without a port */
#define PLACE_ICMP		131328		/* types */
#define PLACE_ICMPV6		131584
#define PLACE_SOURCE_TCP	131840		/* source ports */
#define PLACE_SOURCE_UDP	197376
#define PLACE_SOURCE_NONE	262912
#define PLACE_FLAGS		262944		/* of TCP; 256: none known */
#define PLACE_VLAN		263232		/* ids; 4096: untagged */
#define PLACES			267360

#define CLASS_MANAGED	0x8000	/* of a destination port: it is a management port */

struct class_group {
	__u16 class[CLASSES];
};

/* The set with a fixed meaning. */
#define SET_VITAL	0

struct interface_key {
	__u32 generation;
	__u32 index;
};

/* What holds for a prefix, also by the prefixes that cover it: the latest end
 * and all flags, so that the record of the longest match says it all.
 */
struct prefix {
	__u64 end;		/* of a block, and PREFIX_* in its lowest bits */
	__u16 class[2];		/* in DIM_SOURCE, of each generation */
	__u16 to_class[2];	/* in DIM_DESTINATION */
};
_Static_assert(sizeof(struct prefix) == 16, "prefix layout");

#define PREFIX_ALLOW		(1ULL << 0)
#define PREFIX_MANAGEMENT	(1ULL << 1)
#define PREFIX_FLAGS		3ULL
#define BLOCK_FOREVER		(~PREFIX_FLAGS)	/* an end; 0: no block */

#define PREFIX_WAYS	8	/* prefixes in a line of the tables of prefixes */
#define KEY_SPILLED	(1ULL << 63)	/* of the last key: the line was full once */

/* What a key is, prefix.h says; 0 is none. */
struct prefix_line4 {
	__u64 key[PREFIX_WAYS];
	struct prefix prefix[PREFIX_WAYS];
};
_Static_assert(sizeof(struct prefix_line4) == 192, "the keys are one cache line");

struct prefix_name {
	__u64 hi;
	__u64 lo;
};

struct prefix_line6 {
	__u64 key[PREFIX_WAYS];
	struct prefix prefix[PREFIX_WAYS];
	struct prefix_name name[PREFIX_WAYS];
	__u8 bits[PREFIX_WAYS];	/* for Go */
	__u8 reserved[56];
};
_Static_assert(sizeof(struct prefix_line6) == 384, "the keys are one cache line");

#define ROOT4_BITS	16
#define ROOT6_BITS	16
#define ROOT_GROUP	16	/* roots in an entry */

/* Lengths that are worth a look, a bit each, as prefix.h says. */
struct root_group {
	__u32 lengths[ROOT_GROUP];
};

struct own_address {
	__u8 address[16];	/* IPv4 as ::ffff:a.b.c.d */
};

/* One entry, written by the daemon, read first by each packet. */
struct control {
	__u32 generation;	/* 0 or 1: which half of the tables holds */
	__u32 prefixes4;	/* prefixes in each table; 0 spares the look-up */
	__u32 prefixes6;
	__u32 flags;		/* CONTROL_* */
	__u64 now;		/* the clock of a program loaded with fixed_clock */
	__u64 leash_end;	/* ticks; 0: none. Past it, everything passes */
	__u64 short6;		/* IPv6 lengths 1 to 32 in use: bit 64 - length */
	__u64 long6;		/* 65 to 128: bit 128 - length */
	__u64 reserved[2];
};
_Static_assert(sizeof(struct control) == 64, "control is one cache line");

#define CONTROL_OPEN	(1 << 0)	/* panic: everything passes */
#define CONTROL_WHOLE4	(1 << 1)	/* 0.0.0.0/0 is a prefix */
#define CONTROL_WHOLE6	(1 << 2)	/* ::/0 */
#define CONTROL_CAPTURE	(1 << 3)	/* dropped frames are captured */

#define META_MAGIC	0x48474154	/* "HGAT" */

/* One entry, written once when the maps are made. */
struct meta {
	__u32 magic;
	__u32 layout;
	__u64 epoch;		/* CLOCK_MONOTONIC, ns */
	__u64 seed[4];
	__u32 lines;
	__u32 next_limit;	/* the next limit id, never given twice */
	__u64 reserved[2];
};
_Static_assert(sizeof(struct meta) == 72, "meta layout");

/* The name of a limit: its rule, per, algorithm and unit, padded with zeros. */
struct limit_name {
	__u8 text[128];
};

struct limit_id {
	__u32 id;
	__u32 counter;
};

/* Every packet has exactly one reason. Go names them: maps/reasons.go. */
enum reason {
	REASON_NO_RULE,
	REASON_WITHIN_RATE,
	REASON_VITAL,
	REASON_MANAGEMENT,
	REASON_ALLOW,
	REASON_NOT_IP,
	REASON_OPEN,
	REASON_LEASH,
	REASON_BLOCK,
	REASON_OVER_RATE,
	REASON_TABLE_FULL,
	REASON_CONTENDED,
	REASON_MALFORMED,
	REASON_TRUNCATED,
	REASON_VLAN_DEPTH,
	REASON_STRIKES,
	REASON_UNKNOWN,
	REASONS,
};

#define REASON_PLACES	32

struct count {
	__u64 packets;
	__u64 bytes;
};

#define OVERFLOW	(1U << 31)	/* taking.place is an overflow bucket */

/* One limit's bucket, while a packet takes from it. */
struct taking {
	__u64 tag;
	__u64 tat;		/* as read; once charged, as written */
	__u64 before;		/* what the charge replaced */
	__u64 cost;
	__u64 burst;
	__u64 length;
	__u32 place;		/* line * WAYS + way, or OVERFLOW | counter */
	__u8 charged;
	__u8 over;		/* it has refused the packet, or would have */
	__u8 refused;		/* its refusal is the verdict */
	__u8 reserved;
	__u32 counter;		/* the limit's */
	__u32 reserved2;
	__u64 unknown;		/* charged to what unknown sources take together */
};

/* Which packets are sampled: all while they are few; the more come, the fewer
 * of them, by gaps that are drawn. It has a bucket of samples: the more of it is
 * used, the wider are the gaps.
 */
struct sampler {
	__u64 full;		/* ticks: when its bucket is full again */
	__u32 left;		/* packets that are passed over until the next sample */
	__u32 gap;		/* packets that the next sample stands for */
};

/* A CPU's own: its cached clock, and what it has seen. */
struct cpu {
	__u64 now;
	__u64 jiffies;
	__u32 left;		/* packets until the clock is read again */
	__u32 met;		/* takings of the packet in hand */
	struct sampler samplers[2];	/* of what passes, and of what does not */
	__u64 evicted_live;	/* live buckets that lost their slot */
	__u64 overflowed;	/* packets charged to an overflow bucket */
	__u64 contended;	/* packets that lost a race too often */
	__u64 undo_failed;	/* charges left standing: too strict */
	__u64 recharged;	/* charges that met a slot just lost */
	struct count reasons[REASON_PLACES];
	struct taking takings[SET_LIMITS];	/* of the packet in hand */
	struct limit_set merged;		/* likewise, if it meets several sets */
};

struct rule_counter {
	struct count passed;
	struct count refused;
	struct count watched;
};

/* The bucket that sources share when the table has no slot for them. Its tag
 * stays 0. Alone on its cache line: in a flood every CPU writes it.
 */
struct overflow {
	struct slot slot;
	struct slot unknown;	/* what unknown sources take together */
	__u64 reserved[4];
};

/* A source as bucket keys have it: IPv4 whole, IPv6 by its /64. */
struct source_key {
	__u64 hi;
	__u64 lo;
};

/* One source was blocked by a rule's then. */
struct event {
	struct source_key source;
	__u32 limit;		/* its id */
	__u32 reserved;
	__u64 end;		/* ticks */
};

#define NO_COUNTER	(~0U)

/* What became of one packet, in the place of all that it stands for. */
struct sample {
	__u64 hi, lo;		/* source, as in struct packet; 0: not IP */
	__u64 at;		/* ticks */
	__u32 stands;		/* for so many packets: itself and those before */
	__u32 length;		/* of the whole frame */
	__u32 counter;		/* the deciding limit's; NO_COUNTER: none */
	__u32 interface;
	__u16 sport, dport;	/* or type, if the protocol is ICMP; 0: none */
	__u8 reason;
	__u8 outcome;		/* enum outcome */
	__u8 proto;
	__u8 reserved[17];
};
_Static_assert(sizeof(struct sample) == 64, "a sample is one cache line");

enum outcome {
	OUTCOME_PASSED,
	OUTCOME_REFUSED,
	OUTCOME_WATCHED,
};

#define SAMPLES		2048	/* in a ring: more than come between two looks */

/* A CPU's samples, the oldest overwritten first. */
struct sample_ring {
	__u64 written;		/* since the maps were made */
	__u64 unplaced;		/* packets that no sample stands for */
	__u64 reserved[6];
	struct sample samples[SAMPLES];
};

#define CAPTURES	256
#define CAPTURE_BYTES	256	/* of a frame */

struct capture {
	struct sample sample;
	__u8 frame[CAPTURE_BYTES];
};

/* A CPU's captured frames, likewise. */
struct capture_ring {
	__u64 written;
	__u64 unplaced;
	struct sampler sampler;
	__u64 reserved[4];
	struct capture captures[CAPTURES];
};
