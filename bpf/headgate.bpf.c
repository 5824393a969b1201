// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The network gate: parse → who → which rules → take → verdict → count → sample. */

#include "judge.h"
#include "sample.h"

volatile const bool frags;	/* loaded as a program that takes multi-buffer frames */

/* Vital traffic within its caps, else REASON_NO_RULE: the ordinary verdict. */
static __always_inline enum reason judge_vital(struct xdp_md *ctx, struct packet *p,
					       __u32 generation, struct cpu *cpu,
					       struct control *control, __u64 now)
{
	struct limit_set *set;

	if (!(p->shape & SHAPE_VITAL) && !((p->shape & SHAPE_QUOTE) && quotes_us(ctx, p)))
		return REASON_NO_RULE;
	set = set_at(generation, SET_VITAL);
	if (!set)
		return REASON_NO_RULE;
	p->link = parse_link(ctx);
	if (judge_all(ctx, p, set, cpu, now) == REASON_WITHIN_RATE)
		return REASON_VITAL;
	return REASON_NO_RULE;
}

/* vital → management → allow → block → rules → pass */
static __always_inline enum reason judge_packet(struct xdp_md *ctx, struct packet *p,
						enum reason parsed, struct cpu *cpu,
						struct control *control, __u64 now)
{
	__u32 generation = READ(control->generation) & 1;
	__u16 source = 0, service;
	__u64 held;
	struct plan *plan = bpf_map_lookup_elem(&plans, &generation);
	struct limit_set *set;
	struct prefix *prefix;

	if (!plan)
		return REASON_NO_RULE;
	p->generation = generation;
	if (parsed == REASON_NO_RULE && p->shape & (SHAPE_VITAL | SHAPE_QUOTE)) {
		if (judge_vital(ctx, p, generation, cpu, control, now) == REASON_VITAL)
			return REASON_VITAL;
		/* beyond its caps it is judged by its source like all else */
		p->shape &= ~SHAPE_VITAL;
	}
	service = match_service(p, generation);
	prefix = match_prefix(p, control);
	if (prefix) {
		source = prefix->class[generation & 1];
		held = READ(prefix->end);
		if ((service & CLASS_MANAGED) && (p->shape & SHAPE_PORTS) && (held & PREFIX_MANAGEMENT) &&
		    parsed == REASON_NO_RULE)
			return REASON_MANAGEMENT;
		if (held & PREFIX_ALLOW)
			return parsed == REASON_NO_RULE ? REASON_ALLOW : parsed;
		if (end_blocks(held, now))
			return REASON_BLOCK;
	}
	if (struck(p, plan, now))
		return REASON_STRIKES;
	if (parsed != REASON_NO_RULE)
		return parsed;
	set = match_limits(ctx, p, plan, cpu, generation, source, service & ~CLASS_MANAGED);
	if (!set || !set->n)
		return REASON_NO_RULE;
	return judge(ctx, p, set, generation, cpu, control, now);
}

static __always_inline void count_reason(struct cpu *cpu, __u32 reason, __u64 bytes)
{
	/* the compiler knows the enum's range and drops a mask; the verifier
	 * does not know it
	 */
	asm volatile("%0 &= %1" : "+r"(reason) : "i"(REASON_PLACES - 1));
	count_add(&cpu->reasons[reason], bytes);
}

/* Is the gate open to everything: by hand, or as no daemon has been seen for so
 * long that nobody may know any more that it filters?
 */
static __always_inline enum reason unattended(const struct control *control, __u64 now)
{
	__u64 leash = READ(control->leash_end);

	if (READ(control->flags) & CONTROL_OPEN)
		return REASON_OPEN;
	if (leash && (__s64)(now - leash) > 0)
		return REASON_LEASH;
	return REASON_NO_RULE;
}

static __always_inline int gate(struct xdp_md *ctx)
{
	struct packet p = {};
	struct control *control;
	enum reason reason, open;
	struct cpu *cpu;
	__u32 zero = 0;
	__u64 now;

	control = bpf_map_lookup_elem(&controls, &zero);
	cpu = bpf_map_lookup_elem(&cpus, &zero);
	if (!control || !cpu)
		return XDP_PASS;
	reason = parse_frame(ctx, &p);
	if (frags)
		p.length = bpf_xdp_get_buff_len(ctx);
	now = clock_cached(cpu, control);
	open = unattended(control, now);
	if (open != REASON_NO_RULE)
		reason = open;
	else if (p.shape & SHAPE_IP)
		reason = judge_packet(ctx, &p, reason, cpu, control, now);
	count_reason(cpu, reason, p.length);
	/* the clock's own memory: kept on the stack, the time would be too much for
	 * Linux 6.1 there
	 */
	if (sampler_due(sampler_of(cpu, reason), cpu->now))
		sample_packet(ctx, &p, cpu, reason);
	if (!passes(reason) && READ(control->flags) & CONTROL_CAPTURE)
		capture_frame(ctx, &p, cpu, reason);
	return passes(reason) ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int headgate(struct xdp_md *ctx)
{
	return gate(ctx);
}

/* For bpf2go: enums that no struct holds. */
const enum dimension *unused_dimension __attribute__((unused));
const enum outcome *unused_outcome __attribute__((unused));
const struct event *unused_event __attribute__((unused));
const enum slot_kind *unused_slot_kind __attribute__((unused));
const enum reason *unused_reason __attribute__((unused));

char _license[] SEC("license") = "Dual BSD/GPL";
