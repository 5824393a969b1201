// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The network gate as a tc program: the same judgement on the same maps while
 * an interface is without its XDP program, because its attach mode changes. It
 * stands behind GRO, and behind the kernel's own look at the outermost VLAN
 * tag, which is no longer in the frame then.
 */

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

/* The fields that the path of a packet reads have the same names in both. */
#define xdp_md __sk_buff
#define bpf_xdp_load_bytes bpf_skb_load_bytes
#include "sample.h"

#define TAG_SIZE	4
#define HEADERS		1024	/* bytes: more than the parser ever walks over */

static __always_inline __u64 skb_length(const struct __sk_buff *skb)
{
	return skb->len + (skb->vlan_present ? TAG_SIZE : 0);
}

static __always_inline enum reason parse_skb(struct __sk_buff *skb, struct packet *p)
{
	enum reason reason = parse_frame(skb, p);

	if (skb->vlan_present) {
		p->vlan = skb->vlan_tci & 0xfff;
		p->shape |= SHAPE_VLAN;
	}
	return reason;
}

#define parse_frame parse_skb
#define bpf_xdp_get_buff_len skb_length
#include "headgate.bpf.c"

SEC("tc")
int cover(struct __sk_buff *skb)
{
	/* headers may lie outside the first buffer; where they cannot be pulled
	 * in, the frame is judged as truncated
	 */
	bpf_skb_pull_data(skb, skb->len < HEADERS ? skb->len : HEADERS);
	return gate(skb) == XDP_DROP ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}
