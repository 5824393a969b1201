/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* From frame to struct packet: one cursor; header() is the only bounds check.
 * The source is known before anything behind the network header is read, so
 * that no odd shape of frame escapes a verdict on its source.
 *
 * parse_frame and parse_extensions are global functions: the verifier walks
 * each once, and what they find is unknown to it elsewhere, so that the paths
 * do not multiply.
 */
#pragma once

#include "maps.h"
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>

#define VLAN_DEPTH	4	/* tags on a frame */
#define EXT_DEPTH	12	/* IPv6 extension headers on a packet */
#define PROTO_UNKNOWN	255	/* no transport header was reached */

/* packet.shape */
#define SHAPE_IP	(1 << 0)
#define SHAPE_IPV6	(1 << 1)
#define SHAPE_PORTS	(1 << 2)	/* sport and dport were read */
#define SHAPE_VITAL	(1 << 3)	/* its source is the link address */
#define SHAPE_QUOTE	(1 << 4)	/* offset is where an ICMP error quotes a packet */
#define SHAPE_ROUTER_ALERT (1 << 5)
#define SHAPE_FRAGMENT	(1 << 6)
#define SHAPE_LATER	(1 << 7)	/* a fragment, and not the first */
#define SHAPE_ICMP	(1 << 8)	/* its type was read */
#define SHAPE_FLAGS	(1 << 9)
#define SHAPE_VLAN	(1 << 10)

struct packet {
	__u64 hi, lo;		/* source; IPv4 as hi 0, lo 0xffff and address */
	__u64 link;		/* Ethernet source address */
	__u64 length;		/* the whole frame, without FCS */
	__u32 offset;		/* of the next header, while it is parsed */
	__u32 left;		/* bytes that the IP header leaves from there on */
	__u16 sport, dport;	/* dport is the type of an ICMP packet */
	__u16 network;		/* offset of the IP header */
	__u16 vlan;		/* id of the outermost tag */
	__u16 shape;
	__u16 flags;		/* of TCP, if SHAPE_FLAGS */
	__u8 proto;
	__u8 hops;
	__u8 link_local;	/* IPv6 source is link-local or unspecified */
	__u8 hashed;		/* hash is that of the source, IPv6 by its /64 */
	__u32 generation;	/* of all tables that judge it */
	__u64 hash;
};

struct cursor {
	void *start;
	void *pos;
	void *end;
};

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

struct ports {
	__be16 source;
	__be16 dest;
};

/* What of a TCP header lies between the ports and the flags, and these. */
struct tcp_flags {
	__u8 between[9];
	__u8 flags;
};

/* <linux/if_arp.h> and <linux/icmp.h> drag in the C library. */
#define ARPHRD_ETHER		1
#define ICMP_DEST_UNREACH	3
#define ICMP_FRAG_NEEDED	4
#define ICMPV6_PKT_TOOBIG	2

struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

struct arp_ipv4 {
	__be16 hardware;
	__be16 proto;
	__u8 hardware_size;
	__u8 proto_size;
	__be16 operation;
	__u8 sender_link[ETH_ALEN];
	__u8 sender[4];
	__u8 target_link[ETH_ALEN];
	__u8 target[4];
} __attribute__((packed));

struct ext_header {
	__u8 next;
	__u8 length;
	__be16 offset;		/* fragment header */
};

/* The next size bytes, and the cursor behind them; NULL if the frame ends. */
static __always_inline void *header(struct cursor *c, __u32 size)
{
	void *pos = c->pos;

	if (pos + size > c->end)
		return NULL;
	c->pos = pos + size;
	return pos;
}

static __always_inline struct cursor cursor_at(struct xdp_md *ctx, __u32 offset)
{
	struct cursor c = {
		.start = (void *)(long)ctx->data,
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};

	/* no header starts behind 32 KiB; the mask tells the verifier */
	asm volatile("%0 &= 0x7fff" : "+r"(offset));
	c.pos += offset;
	return c;
}

static __always_inline __u64 load_be64(const void *p)
{
	const __u32 *words = p;

	return (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]);
}

static __always_inline __u64 ipv4_lo(__be32 address)
{
	return 0xffffULL << 32 | bpf_ntohl(address);
}

static __always_inline bool dhcp_ports(__u16 sport, __u16 dport, __u16 server,
				       __u16 client)
{
	return (dport == client && sport == server) ||
	       (dport == server && (sport == client || sport == server));
}

/* IPv6 neighbour discovery needs hop limit 255 (RFC 4861), MLD hop limit 1, a
 * router alert and a link-local source (RFC 3810, section 5).
 */
static __always_inline bool vital_icmpv6(const struct packet *p, __u8 type, __u8 code)
{
	if (type >= 133 && type <= 137)
		return p->hops == 255 && code == 0;
	if ((type >= 130 && type <= 132) || type == 143)
		return p->hops == 1 && (p->shape & SHAPE_ROUTER_ALERT) && p->link_local;
	return false;
}

/* ICMP "fragmentation needed" and ICMPv6 "packet too big". */
static __always_inline bool quotes_packet(const struct packet *p, __u8 type, __u8 code)
{
	if (p->shape & SHAPE_IPV6)
		return type == ICMPV6_PKT_TOOBIG && code == 0;
	return type == ICMP_DEST_UNREACH && code == ICMP_FRAG_NEEDED;
}

/* A first fragment may be too short to have them. */
static __always_inline void parse_flags(struct cursor *c, struct packet *p)
{
	struct tcp_flags *tcp = header(c, sizeof(*tcp));

	if (!tcp || p->left < 14)
		return;
	p->flags = tcp->flags;
	p->shape |= SHAPE_FLAGS;
}

static __always_inline enum reason parse_transport(struct cursor *c, struct packet *p)
{
	__u32 left = p->left;
	struct ports *ports;
	struct icmp_header *icmp;

	if (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP) {
		/* a first fragment may be as short as 8 bytes: the ports are in it */
		if (left < ((p->proto == IPPROTO_TCP && !(p->shape & SHAPE_FRAGMENT)) ? 20 : 8))
			return REASON_MALFORMED;
		ports = header(c, sizeof(*ports));
		if (!ports)
			return REASON_TRUNCATED;
		p->sport = bpf_ntohs(ports->source);
		p->dport = bpf_ntohs(ports->dest);
		p->shape |= SHAPE_PORTS;
		if (p->proto == IPPROTO_TCP)
			parse_flags(c, p);
		if (p->proto == IPPROTO_UDP && !(p->shape & SHAPE_FRAGMENT) &&
		    ((p->shape & SHAPE_IPV6) ? dhcp_ports(p->sport, p->dport, 547, 546)
					     : dhcp_ports(p->sport, p->dport, 67, 68)))
			p->shape |= SHAPE_VITAL;
		return REASON_NO_RULE;
	}
	if (p->proto != ((p->shape & SHAPE_IPV6) ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return REASON_NO_RULE;
	if (left < sizeof(*icmp))
		return REASON_MALFORMED;
	icmp = header(c, sizeof(*icmp));
	if (!icmp)
		return REASON_TRUNCATED;
	p->dport = icmp->type;
	p->shape |= SHAPE_ICMP;
	/* RFC 6980: neighbour discovery is never fragmented */
	if (p->shape & SHAPE_FRAGMENT)
		return REASON_NO_RULE;
	if ((p->shape & SHAPE_IPV6) && vital_icmpv6(p, icmp->type, icmp->code))
		p->shape |= SHAPE_VITAL;
	if (quotes_packet(p, icmp->type, icmp->code)) {
		p->shape |= SHAPE_QUOTE;
		p->offset = c->pos - c->start;
	}
	return REASON_NO_RULE;
}

static __always_inline enum reason parse_ipv4(struct cursor *c, struct packet *p)
{
	struct iphdr *ip = header(c, sizeof(*ip));
	__u32 size, total;
	__u16 fragment;

	if (!ip)
		return REASON_TRUNCATED;
	size = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || size < sizeof(*ip) || total < size)
		return REASON_MALFORMED;
	p->shape |= SHAPE_IP;
	p->hi = 0;
	p->lo = ipv4_lo(ip->saddr);
	p->proto = ip->protocol;
	p->hops = ip->ttl;
	fragment = bpf_ntohs(ip->frag_off);
	if (!header(c, size - sizeof(*ip)))
		return REASON_TRUNCATED;
	if (fragment & 0x3fff)
		p->shape |= SHAPE_FRAGMENT;
	if (fragment & 0x1fff) {
		p->shape |= SHAPE_LATER;
		return REASON_NO_RULE;
	}
	p->left = total - size;
	return parse_transport(c, p);
}

static __always_inline bool is_extension(__u8 proto)
{
	switch (proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case 135:		/* mobility, RFC 6275 */
	case 139:		/* HIP, RFC 7401 */
	case 140:		/* shim6, RFC 5533 */
		return true;
	}
	return false;
}

/* One extension header. REASON_NO_RULE: it was walked over. */
static __always_inline enum reason parse_extension(struct cursor *c, struct packet *p)
{
	struct ext_header *ext = header(c, 8);
	__u8 proto = p->proto;
	__u32 size;

	if (!ext)
		return REASON_TRUNCATED;
	size = (ext->length + 1) * 8;
	if (proto == IPPROTO_AH)
		size = (ext->length + 2) * 4;
	if (proto == IPPROTO_FRAGMENT)
		size = 8;
	if (size < 8 || p->left < size)
		return REASON_MALFORMED;
	p->left -= size;
	p->offset += size;
	p->proto = ext->next;
	/* router alert: option 5, two bytes long (RFC 2711) */
	if (proto == IPPROTO_HOPOPTS && ext->offset == bpf_htons(0x0502))
		p->shape |= SHAPE_ROUTER_ALERT;
	if (proto == IPPROTO_FRAGMENT) {
		/* a whole packet in one fragment is none (RFC 6946) */
		if (ext->offset & bpf_htons(0xfff9))
			p->shape |= SHAPE_FRAGMENT;
		if (ext->offset & bpf_htons(0xfff8))
			p->shape |= SHAPE_LATER;
	}
	return REASON_NO_RULE;
}

/* Walks the extension headers (RFC 8200, section 4) up to EXT_DEPTH. A chain
 * that is longer leaves the transport unknown: rules with a port do not match.
 */
__noinline int parse_extensions(struct xdp_md *ctx, struct packet *p)
{
	enum reason reason;
	struct cursor c;
	int i;

	if (!p)
		return REASON_MALFORMED;
	/* Linux 6.1 takes a loop only where its end jumps back: a loop whose end
	 * the compiler lays right before its start is refused
	 */
#pragma unroll
	for (i = 0; i <= EXT_DEPTH; i++) {
		c = cursor_at(ctx, p->offset);
		if (!is_extension(p->proto))
			return p->shape & SHAPE_LATER ? REASON_NO_RULE
						      : parse_transport(&c, p);
		if (i == EXT_DEPTH || p->shape & SHAPE_LATER)
			break;
		reason = parse_extension(&c, p);
		if (reason != REASON_NO_RULE)
			return reason;
	}
	p->proto = PROTO_UNKNOWN;
	return REASON_NO_RULE;
}

static __always_inline enum reason parse_ipv6(struct xdp_md *ctx, struct cursor *c,
					      struct packet *p)
{
	struct ipv6hdr *ip = header(c, sizeof(*ip));

	if (!ip)
		return REASON_TRUNCATED;
	if (ip->version != 6)
		return REASON_MALFORMED;
	p->shape |= SHAPE_IP | SHAPE_IPV6;
	p->hi = load_be64(&ip->saddr);
	p->lo = load_be64((void *)&ip->saddr + 8);
	p->proto = ip->nexthdr;
	p->hops = ip->hop_limit;
	p->link_local = p->hi >> 54 == 0xfe80 >> 6 || (p->hi | p->lo) == 0;
	p->left = bpf_ntohs(ip->payload_len);
	/* 0 is a jumbogram or GRO's work: its length stands elsewhere */
	if (!p->left)
		p->left = 1U << 16;
	if (!is_extension(p->proto))
		return parse_transport(c, p);
	p->offset = c->pos - c->start;
	return parse_extensions(ctx, p);
}

/* ARP speaks for its sender's address; only Ethernet and IPv4 are its shape. */
static __always_inline enum reason parse_arp(struct cursor *c, struct packet *p)
{
	struct arp_ipv4 *arp = header(c, sizeof(*arp));
	__be32 sender;

	if (!arp || arp->hardware != bpf_htons(ARPHRD_ETHER) ||
	    arp->proto != bpf_htons(ETH_P_IP) ||
	    arp->hardware_size != ETH_ALEN || arp->proto_size != 4)
		return REASON_MALFORMED;
	__builtin_memcpy(&sender, arp->sender, sizeof(sender));
	p->shape |= SHAPE_IP | SHAPE_VITAL;
	p->hi = 0;
	p->lo = ipv4_lo(sender);
	p->proto = PROTO_UNKNOWN;
	return REASON_NO_RULE;
}

/* The Ethernet source address, which few packets are judged by. */
static __always_inline __u64 parse_link(struct xdp_md *ctx)
{
	struct cursor c = cursor_at(ctx, 0);
	struct ethhdr *eth = header(&c, sizeof(*eth));
	__u64 link = 0;

	if (eth)
		__builtin_memcpy(&link, eth->h_source, ETH_ALEN);
	return link;
}

/* REASON_NO_RULE means: parsed, judge it. Any other reason is the verdict's,
 * but for the source, which is judged first where SHAPE_IP is set.
 */
static __always_inline enum reason parse_frame(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = cursor_at(ctx, 0);
	struct vlan_tag *tag;
	struct ethhdr *eth;
	__be16 proto;
	int i;

	p->length = c.end - c.pos;
	eth = header(&c, sizeof(*eth));
	if (!eth)
		return REASON_TRUNCATED;
	proto = eth->h_proto;
#pragma unroll
	for (i = 0; i < VLAN_DEPTH; i++) {
		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		tag = header(&c, sizeof(*tag));
		if (!tag)
			return REASON_TRUNCATED;
		if (i == 0) {
			p->vlan = bpf_ntohs(tag->tci) & 0xfff;
			p->shape |= SHAPE_VLAN;
		}
		proto = tag->proto;
	}
	p->network = c.pos - c.start;
	if (proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(&c, p);
	if (proto == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(ctx, &c, p);
	if (proto == bpf_htons(ETH_P_ARP))
		return parse_arp(&c, p);
	if (proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD))
		return REASON_VLAN_DEPTH;
	return REASON_NOT_IP;
}
