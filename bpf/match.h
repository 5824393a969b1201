/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Which lists and which limits hold for a packet: its class in each dimension
 * that rules ask in, then the sets of these classes, then the crossing.
 */
#pragma once

#include "maps.h"
#include "parse.h"
#include "prefix.h"

static __always_inline __u16 class_at(__u32 generation, __u32 place)
{
	__u32 index = generation * (PLACES / CLASSES) + place / CLASSES;
	struct class_group *group = bpf_map_lookup_elem(&classes, &index);

	return group ? group->class[place % CLASSES] : 0;
}

/* The class of the packet's service: its port or ICMP type, or its protocol
 * where none was read (later fragments, other protocols, headers out of reach).
 */
static __always_inline __u16 match_service(const struct packet *p, __u32 generation)
{
	__u32 place = PLACE_PROTO + p->proto;

	if (p->shape & SHAPE_PORTS)
		place = (p->proto == IPPROTO_TCP ? PLACE_TCP : PLACE_UDP) + p->dport;
	else if (p->shape & SHAPE_ICMP)
		place = (p->proto == IPPROTO_ICMP ? PLACE_ICMP : PLACE_ICMPV6) +
			(p->dport & 0xff);
	return class_at(generation, place);
}

static __always_inline __u16 match_source_port(const struct packet *p, __u32 generation)
{
	__u32 place = PLACE_SOURCE_NONE;

	if (p->shape & SHAPE_PORTS)
		place = (p->proto == IPPROTO_TCP ? PLACE_SOURCE_TCP : PLACE_SOURCE_UDP) +
			p->sport;
	return class_at(generation, place);
}

static __always_inline __u16 match_interface(struct xdp_md *ctx, __u32 generation)
{
	struct interface_key key = { .generation = generation, .index = ctx->ingress_ifindex };
	__u16 *class = bpf_map_lookup_elem(&interfaces, &key);

	return class ? *class : 0;
}

/* The destination as packet.hi and lo hold the source. False for ARP. */
static __always_inline bool load_destination(struct xdp_md *ctx, const struct packet *p,
					     __u64 *hi, __u64 *lo)
{
	struct cursor c = cursor_at(ctx, p->network);

	if (p->shape & SHAPE_IPV6) {
		struct ipv6hdr *ip = header(&c, sizeof(*ip));

		if (!ip)
			return false;
		*hi = load_be64(&ip->daddr);
		*lo = load_be64((void *)&ip->daddr + 8);
	} else {
		struct iphdr *ip = header(&c, sizeof(*ip));

		if (!ip || ip->version != 4)
			return false;
		*hi = 0;
		*lo = ipv4_lo(ip->daddr);
	}
	return true;
}

static __always_inline __u16 match_destination(struct xdp_md *ctx, const struct packet *p,
					       const struct control *control,
					       __u32 generation)
{
	struct prefix *prefix;
	__u64 hi = 0, lo = 0;

	if (!load_destination(ctx, p, &hi, &lo))
		return 0;
	prefix = p->shape & SHAPE_IPV6 ? prefix6_of(hi, lo, control) : prefix4_of(lo, control);
	return prefix ? prefix->to_class[generation & 1] : 0;
}

static __always_inline struct limit_set *set_at(__u32 generation, __u32 set)
{
	__u32 index = generation * MAX_SETS + (set & (MAX_SETS - 1));

	return bpf_map_lookup_elem(&limit_sets, &index);
}

/* Adds the limits of a set to those of the packet. */
static __always_inline void merge(struct limit_set *merged, __u32 generation, __u32 set)
{
	struct limit_set *more = set_at(generation, set);
	__u64 n = merged->n;
	__u32 i;

	if (!more)
		return;
	for (i = 0; i < SET_LIMITS && i < more->n; i++) {
		/* the compiler must compare what it then uses: the verifier of
		 * 6.18.15 loses the bound on its n | 4
		 */
		asm volatile("" : "+r"(n));
		if (n >= SET_LIMITS)
			break;
		merged->limits[n] = more->limits[i];
		n++;
	}
	merged->n = n;
	merged->flags |= more->flags;
}

/* One step: the packet's class leads to a set, and the state to the next. */
static __always_inline __u32 match_step(const struct plan *plan, struct limit_set *merged,
					__u32 generation, enum dimension d, __u32 class,
					__u32 state)
{
	struct class_group *group;
	__u32 cell, index;

	merge(merged, generation, plan->sets[d] + class);
	if (!(plan->crossed & (1U << d)))
		return state;
	cell = plan->cells[d] + state * plan->width[d] + class;
	index = (generation & 1) * (MAX_CELLS / CLASSES) + (cell & (MAX_CELLS - 1)) / CLASSES;
	group = bpf_map_lookup_elem(&crossings, &index);
	return group ? group->class[cell % CLASSES] : 0;
}

/* All limits of the packet, gathered in the CPU's memory. A global function:
 * the verifier walks it once.
 */
__noinline int match_dimensions(struct xdp_md *ctx, const struct packet *p,
				const struct plan *plan, struct cpu *cpu, __u64 known)
{
	__u32 zero = 0, generation = known >> 32 & 1, state = 0;
	struct limit_set *merged;
	struct control *control;

	control = bpf_map_lookup_elem(&controls, &zero);
	if (!p || !plan || !cpu || !control)
		return 0;
	merged = &cpu->merged;
	merged->n = 0;
	merged->flags = 0;
	if (plan->used & (1 << DIM_SOURCE))
		state = match_step(plan, merged, generation, DIM_SOURCE, known >> 16 & 0xffff, state);
	if (plan->used & (1 << DIM_DESTINATION))
		state = match_step(plan, merged, generation, DIM_DESTINATION,
				   match_destination(ctx, p, control, generation), state);
	if (plan->used & (1 << DIM_SERVICE))
		state = match_step(plan, merged, generation, DIM_SERVICE, known & 0x7fff, state);
	if (plan->used & (1 << DIM_FLAGS))
		state = match_step(plan, merged, generation, DIM_FLAGS,
				   class_at(generation, PLACE_FLAGS + (p->shape & SHAPE_FLAGS ?
								       p->flags & 0xff : 256)),
				   state);
	if (plan->used & (1 << DIM_SOURCE_PORT))
		state = match_step(plan, merged, generation, DIM_SOURCE_PORT,
				   match_source_port(p, generation), state);
	if (plan->used & (1 << DIM_VLAN))
		state = match_step(plan, merged, generation, DIM_VLAN,
				   class_at(generation, PLACE_VLAN + (p->shape & SHAPE_VLAN ?
								      p->vlan & 0xfff : 4096)),
				   state);
	if (plan->used & (1 << DIM_INTERFACE))
		state = match_step(plan, merged, generation, DIM_INTERFACE,
				   match_interface(ctx, generation), state);
	if (plan->crossed)
		merge(merged, generation, plan->crossed_sets + state);
	return 0;
}

/* The limits of the packet; most often those of its service are all. known is
 * what the caller has found already: generation, source class, service class.
 */
static __always_inline struct limit_set *match_limits(struct xdp_md *ctx,
						      const struct packet *p,
						      const struct plan *plan,
						      struct cpu *cpu, __u32 generation,
						      __u16 source, __u16 service)
{
	__u64 known = (__u64)generation << 32 | (__u64)source << 16 | service;

	if (!plan->used)
		return NULL;
	if (plan->used == 1 << DIM_SERVICE)
		return set_at(generation, plan->sets[DIM_SERVICE] + service);
	match_dimensions(ctx, p, plan, cpu, known);
	return &cpu->merged;
}

/* What holds for the source by its prefix; NULL: nothing. */
static __always_inline struct prefix *match_prefix(const struct packet *p,
						   const struct control *control)
{
	if (p->shape & SHAPE_IPV6)
		return prefix6_of(p->hi, p->lo, control);
	return prefix4_of(p->lo, control);
}

static __always_inline bool end_blocks(__u64 end, __u64 now)
{
	end &= BLOCK_FOREVER;
	return end == BLOCK_FOREVER || (end && (__s64)(end - now) > 0);
}

/* True if the packet that an ICMP error quotes was sent by this host: others'
 * errors are not vital to us.
 */
static __always_inline bool quotes_us(struct xdp_md *ctx, const struct packet *p)
{
	struct cursor c = cursor_at(ctx, p->offset);
	struct own_address own = { .address = { [10] = 0xff, [11] = 0xff } };

	if (p->shape & SHAPE_IPV6) {
		struct ipv6hdr *ip = header(&c, sizeof(*ip));

		if (!ip || ip->version != 6)
			return false;
		__builtin_memcpy(own.address, &ip->saddr, 16);
	} else {
		struct iphdr *ip = header(&c, sizeof(*ip));

		if (!ip || ip->version != 4)
			return false;
		__builtin_memcpy(&own.address[12], &ip->saddr, 4);
	}
	return bpf_map_lookup_elem(&own_addresses, &own);
}
