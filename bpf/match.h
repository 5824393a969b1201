/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Which lists and which limits hold for a packet. The cost does not depend on
 * the number of rules: one look-up gives the service class, one its limits.
 */
#pragma once

#include "maps.h"
#include "parse.h"

/* The class of the packet's service: its port, or its protocol where no port
 * was read (later fragments, other protocols, headers out of reach).
 */
static __always_inline __u16 match_class(const struct packet *p, __u32 generation)
{
	__u32 base = generation * SERVICES_SIZE, place, index;
	struct service *service;

	if (p->shape & SHAPE_PORTS) {
		place = p->dport;
		base += p->proto == IPPROTO_TCP ? SERVICES_TCP : SERVICES_UDP;
	} else {
		place = p->proto;
		base += SERVICES_PROTO;
	}
	index = base + place / CLASSES;
	service = bpf_map_lookup_elem(&services, &index);
	return service ? service->class[place % CLASSES] : 0;
}

static __always_inline struct limit_set *match_set(__u16 class, __u32 generation)
{
	__u32 index = generation * MAX_SETS + (class & (MAX_SETS - 1));

	return bpf_map_lookup_elem(&limit_sets, &index);
}

/* What holds for the source by its prefix; NULL: nothing. */
static __always_inline struct prefix *match_prefix(const struct packet *p,
						   const struct control *control)
{
	if (p->shape & SHAPE_IPV6) {
		struct prefix6_key key = { .bits = 128 };
		__u32 *words = (__u32 *)key.address;

		if (!control->prefixes6)
			return NULL;
		words[0] = bpf_htonl(p->hi >> 32);
		words[1] = bpf_htonl((__u32)p->hi);
		words[2] = bpf_htonl(p->lo >> 32);
		words[3] = bpf_htonl((__u32)p->lo);
		return bpf_map_lookup_elem(&prefixes6, &key);
	} else {
		struct prefix4_key key = { .bits = 32 };

		if (!control->prefixes4)
			return NULL;
		*(__u32 *)key.address = bpf_htonl((__u32)p->lo);
		return bpf_map_lookup_elem(&prefixes4, &key);
	}
}

static __always_inline bool prefix_blocks(const struct prefix *prefix, __u64 now)
{
	__u64 end = READ(prefix->block_end);

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
