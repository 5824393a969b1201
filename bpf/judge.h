/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* From a limit set to a reason: takes from every limit of the set and counts
 * for every rule. A watching limit charges its own bucket as if it enforced;
 * it is neither charged nor counted when an enforcing one refuses.
 */
#pragma once

#include "strike.h"

static __always_inline void count_add(struct count *count, __u64 bytes)
{
	count->packets++;
	count->bytes += bytes;
}

static __always_inline void count_rule(__u32 index, enum outcome outcome, __u64 bytes)
{
	struct rule_counter *counter = bpf_map_lookup_elem(&rule_counters, &index);

	if (!counter)
		return;
	if (outcome == OUTCOME_PASSED)
		count_add(&counter->passed, bytes);
	else if (outcome == OUTCOME_REFUSED)
		count_add(&counter->refused, bytes);
	else
		count_add(&counter->watched, bytes);
}

static __always_inline enum reason refusal(enum take taken, const struct taking *t)
{
	if (taken == TAKE_UNKNOWN)
		return REASON_UNKNOWN;
	if (taken == TAKE_REFUSED)
		return t->place & OVERFLOW ? REASON_TABLE_FULL : REASON_OVER_RATE;
	return REASON_CONTENDED;
}

static __always_inline struct limit *set_limit(const struct limit_set *set, __u32 i,
					       __u32 generation)
{
	__u32 index = generation * MAX_LIMITS +
		      (set->limits[i] & (MAX_LIMITS - 1));

	return bpf_map_lookup_elem(&limits, &index);
}

static __always_inline enum reason judge_one(struct xdp_md *ctx, const struct packet *p,
					     struct limit *limit, struct cpu *cpu,
					     __u32 generation, __u64 now)
{
	/* on the stack it would not leave room for what Linux 6.1 counts twice */
	struct taking *t = &cpu->takings[0];
	enum take taken = take_one(t, ctx, p, limit, cpu, generation, now);
	enum outcome outcome = OUTCOME_PASSED;

	if (taken == TAKE_BUSY || taken == TAKE_LOST)
		cpu->contended++;
	if (taken != TAKE_OK)
		outcome = limit->flags & LIMIT_WATCH ? OUTCOME_WATCHED : OUTCOME_REFUSED;
	count_rule(limit->counter, outcome, p->length);
	t->over = outcome != OUTCOME_PASSED;
	t->refused = outcome == OUTCOME_REFUSED;
	if (taken != TAKE_OK)
		take_unknown_back(t);
	if (outcome != OUTCOME_REFUSED)
		return REASON_WITHIN_RATE;
	if (limit->extra)
		strike(p, limit, generation, now);
	return refusal(taken, t);
}

/* A limit has refused the packet: REASON_WITHIN_RATE to go on, if it watches. */
static __always_inline enum reason judge_refused(const struct packet *p,
						 const struct limit *limit,
						 struct taking *t, enum take taken)
{
	t->over = true;
	if (limit->flags & LIMIT_WATCH)
		return REASON_WITHIN_RATE;
	t->refused = true;
	count_rule(limit->counter, OUTCOME_REFUSED, p->length);
	return refusal(taken, t);
}

/* What a limit's answer means for the packet. */
static __always_inline enum reason judge_taken(const struct packet *p,
					       const struct limit *limit, struct taking *t,
					       struct cpu *cpu, enum take taken)
{
	if (taken == TAKE_OK)
		return REASON_WITHIN_RATE;
	if (taken != TAKE_REFUSED)
		cpu->contended++;
	return judge_refused(p, limit, t, taken);
}

/* Global functions: the verifier walks each once. The packet's takings lie in
 * the CPU's memory, where the verifier does not follow their values.
 */
__noinline int judge_first(const struct packet *p, const struct limit *limit,
			   struct taking *t, struct cpu *cpu, __u64 now)
{
	if (!p || !limit || !t || !cpu)
		return REASON_CONTENDED;
	if (t->charged || take_reads(t, now))
		return REASON_WITHIN_RATE;
	return judge_taken(p, limit, t, cpu, take_first(t, limit, cpu, now));
}

__noinline int judge_second(const struct packet *p, const struct limit *limit,
			    struct taking *t, struct cpu *cpu, __u64 now)
{
	if (!p || !limit || !t || !cpu)
		return REASON_CONTENDED;
	if (t->over || t->charged || take_charges(t, cpu, now))
		return REASON_WITHIN_RATE;
	return judge_taken(p, limit, t, cpu, take_second(t, limit, cpu, now));
}

/* The packet's takings, read, charged and counted where all goes as it nearly
 * always does: every key has its slot, every bucket room, and no other CPU comes
 * between. True if so. If not, every taking is prepared, some may be charged,
 * and judge_many goes on.
 */
__noinline int judge_swiftly(struct xdp_md *ctx, struct packet *p,
			     const struct limit_set *set, struct cpu *cpu, __u64 now)
{
	bool all = true;
	struct limit *limit;
	__u32 i, n;

	if (!p || !set || !cpu)
		return false;
	if (!(p->shape & SHAPE_VITAL)) {
		p->hash = table_hash(p->hi, p->shape & SHAPE_IPV6 ? 0 : p->lo);
		p->hashed = true;
	}
	n = set->n;
	for (i = 0; i < SET_LIMITS && i < n; i++) {
		limit = set_limit(set, i, p->generation & 1);
		if (!limit) {
			all = false;
			continue;
		}
		taking_init(&cpu->takings[i], ctx, p, limit);
		if (limit->extra || !take_reads(&cpu->takings[i], now))
			all = false;
	}
	for (i = 0; i < SET_LIMITS && i < n && all; i++)
		all = take_charges(&cpu->takings[i], cpu, now);
	for (i = 0; i < SET_LIMITS && i < n && all; i++)
		count_rule(cpu->takings[i].counter, OUTCOME_PASSED, p->length);
	return all;
}

/* The long way, for takings that judge_swiftly has prepared. */
__noinline int judge_many(const struct packet *p, const struct limit_set *set,
			  __u32 generation, struct cpu *cpu, __u64 now)
{
	int reason = REASON_WITHIN_RATE;
	struct limit *limit;
	__u32 i, n;

	if (!p || !set || !cpu)
		return REASON_CONTENDED;
	n = set->n;
	for (i = 0; i < SET_LIMITS && i < n && reason == REASON_WITHIN_RATE; i++) {
		limit = set_limit(set, i, generation);
		if (!limit)
			continue;
		if (limit->extra &&
		    take_unknown(&cpu->takings[i], p, limit, generation, now) == TAKE_UNKNOWN)
			reason = judge_refused(p, limit, &cpu->takings[i], TAKE_UNKNOWN);
		else
			reason = judge_first(p, limit, &cpu->takings[i], cpu, now);
		if (reason != REASON_WITHIN_RATE && limit->extra)
			strike(p, limit, generation, now);
	}
	/* i is how many takings are this packet's */
	n = i;
	for (i = 0; i < SET_LIMITS && i < n && reason == REASON_WITHIN_RATE; i++) {
		limit = set_limit(set, i, generation);
		if (!limit)
			continue;
		reason = judge_second(p, limit, &cpu->takings[i], cpu, now);
		if (reason != REASON_WITHIN_RATE && limit->extra)
			strike(p, limit, generation, now);
	}
	for (i = 0; i < SET_LIMITS && i < n; i++) {
		limit = set_limit(set, i, generation);
		if (reason != REASON_WITHIN_RATE)
			take_undo(&cpu->takings[i], cpu);
		else if (cpu->takings[i].over)
			take_unknown_back(&cpu->takings[i]);
		if (reason == REASON_WITHIN_RATE && limit)
			count_rule(limit->counter, cpu->takings[i].over ? OUTCOME_WATCHED :
								 OUTCOME_PASSED, p->length);
	}
	return reason;
}

/* Takes from every limit of a set, or from none. */
static __always_inline enum reason judge_all(struct xdp_md *ctx, struct packet *p,
					     const struct limit_set *set, struct cpu *cpu,
					     __u64 now)
{
	if (judge_swiftly(ctx, p, set, cpu, now))
		return REASON_WITHIN_RATE;
	return judge_many(p, set, p->generation & 1, cpu, now);
}

static __always_inline enum reason judge(struct xdp_md *ctx, struct packet *p,
					 const struct limit_set *set, __u32 generation,
					 struct cpu *cpu, struct control *control, __u64 now)
{
	if (set->flags & SET_EXACT)
		now = clock_read(cpu, control);
	cpu->met = set->n;
	if (set->n == 1) {
		struct limit *limit = set_limit(set, 0, generation);

		if (limit)
			return judge_one(ctx, p, limit, cpu, generation, now);
	}
	return judge_all(ctx, p, set, cpu, now);
}
