/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Samples for whoever looks: who sends, what is dropped. At few packets a second
 * each one is sampled; at any flood about a thousand a second on a CPU are, of
 * what passes and of what does not, so that neither side pays for its size. Rings are overwritten, never full, and
 * nobody is woken.
 */
#pragma once

#include "judge.h"

/* A sampler's bucket fills by one sample in 2^SHIFT ticks. For each so many
 * samples that it lacks, the mean gap doubles.
 */
#define SAMPLE_SHIFT	26	/* 1.05 ms */
#define SAMPLE_STEPS	5	/* 32 samples: at most 480 at once */
#define CAPTURE_SHIFT	25	/* 0.52 ms */
#define CAPTURE_STEPS	3	/* 8 frames: at most 120 at once */
#define WIDEST_GAP	14	/* 16384 packets on average */

static __always_inline bool passes(enum reason reason)
{
	return reason <= REASON_LEASH;
}

/* What is dropped has a sampler of its own, so that a few drops are not lost
 * among much that passes.
 */
static __always_inline struct sampler *sampler_of(struct cpu *cpu, enum reason reason)
{
	return &cpu->samplers[passes(reason) ? 0 : 1];
}

/* Is the packet in hand to be sampled? A sampler whose bucket is full takes
 * whatever comes, also if it drew a wide gap while more did.
 */
static __always_inline bool sampler_due(struct sampler *s, __u64 now)
{
	if (s->left == 0 || (__s64)(now - s->full) > 0)
		return true;
	s->left--;
	return false;
}

/* How many packets the sample stands for, and the gap before the next. Those
 * between two samples are the later one's, so that all of them add up; where
 * packets got few meanwhile they are nobody's, as this sample was not drawn.
 */
static __always_inline __u32 sampler_take(struct sampler *s, __u64 now, __u32 shift,
					  __u32 steps, __u64 *unplaced)
{
	__u32 stands = s->gap ? s->gap : 1, mean;
	__u64 used = 0;

	if (s->left) {
		*unplaced += stands - 1 - s->left;
		stands = 1;
	}
	if ((__s64)(s->full - now) > 0)
		used = s->full - now;
	s->full = now + used + (1ULL << shift);
	used >>= shift + steps;
	mean = 1U << (used > WIDEST_GAP ? WIDEST_GAP : used);
	s->gap = 1;
	if (mean > 1) {
		s->gap = bpf_get_prandom_u32() & (2 * mean - 1);
		if (!s->gap)
			s->gap = mean;
	}
	s->left = s->gap - 1;
	return stands;
}

/* Which limit decided, and how: the one that refused; else one that would have;
 * else the first.
 */
static __always_inline void sample_rule(struct sample *s, const struct cpu *cpu,
					__u32 reason)
{
	bool judged = reason == REASON_WITHIN_RATE || reason == REASON_OVER_RATE ||
		      reason == REASON_TABLE_FULL || reason == REASON_CONTENDED ||
		      reason == REASON_UNKNOWN;
	__u32 i;

	s->counter = NO_COUNTER;
	s->outcome = passes(reason) ? OUTCOME_PASSED : OUTCOME_REFUSED;
	if (!judged)
		return;
	for (i = 0; i < SET_LIMITS && i < cpu->met; i++) {
		const struct taking *t = &cpu->takings[i];

		if (i == 0)
			s->counter = t->counter;
		if (t->over && passes(reason)) {
			s->counter = t->counter;
			s->outcome = OUTCOME_WATCHED;
			return;
		}
		if (t->refused) {
			s->counter = t->counter;
			return;
		}
	}
}

static __always_inline void sample_fill(struct sample *s, struct xdp_md *ctx,
					const struct packet *p, const struct cpu *cpu,
					__u32 reason, __u64 now)
{
	bool ports = p->shape & (SHAPE_PORTS | SHAPE_ICMP);

	s->hi = p->shape & SHAPE_IP ? p->hi : 0;
	s->lo = p->shape & SHAPE_IP ? p->lo : 0;
	s->at = now;
	s->length = p->length;
	s->interface = ctx->ingress_ifindex;
	s->sport = p->shape & SHAPE_PORTS ? p->sport : 0;
	s->dport = ports ? p->dport : 0;
	s->proto = p->proto;
	s->reason = reason;
	sample_rule(s, cpu, reason);
}

/* Global functions: the verifier walks each once. */
__noinline int sample_packet(struct xdp_md *ctx, const struct packet *p, struct cpu *cpu,
			     __u32 reason)
{
	__u32 id = bpf_get_smp_processor_id();
	struct sample_ring *ring = bpf_map_lookup_elem(&samples, &id);
	struct sample *s;
	__u64 n, now;

	if (!p || !cpu || !ring)
		return 0;
	now = cpu->now;
	n = ring->written;
	s = &ring->samples[n & (SAMPLES - 1)];
	s->stands = sampler_take(sampler_of(cpu, reason), now, SAMPLE_SHIFT,
				 SAMPLE_STEPS, &ring->unplaced);
	sample_fill(s, ctx, p, cpu, reason, now);
	__sync_lock_test_and_set(&ring->written, n + 1);
	return 0;
}

/* The first bytes of a dropped frame. */
__noinline int capture_frame(struct xdp_md *ctx, const struct packet *p, struct cpu *cpu,
			     __u32 reason)
{
	__u32 id = bpf_get_smp_processor_id();
	struct capture_ring *ring = bpf_map_lookup_elem(&captures, &id);
	struct capture *c;
	__u64 n, now;
	__u32 length;

	if (!p || !cpu || !ring || !sampler_due(&ring->sampler, cpu->now))
		return 0;
	now = cpu->now;
	n = ring->written;
	c = &ring->captures[n & (CAPTURES - 1)];
	c->sample.stands = sampler_take(&ring->sampler, now, CAPTURE_SHIFT, CAPTURE_STEPS,
					&ring->unplaced);
	sample_fill(&c->sample, ctx, p, cpu, reason, now);
	length = p->length < CAPTURE_BYTES ? p->length : CAPTURE_BYTES;
	/* 1 to CAPTURE_BYTES, so that Linux 6.1 sees it too */
	length = ((length - 1) & (CAPTURE_BYTES - 1)) + 1;
	if (bpf_xdp_load_bytes(ctx, 0, c->frame, length))
		return 0;
	__sync_lock_test_and_set(&ring->written, n + 1);
	return 0;
}
