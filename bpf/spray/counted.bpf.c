// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The network gate with every table look-up counted: for the test that a
 * packet's do not depend on the number of rules.
 */

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

__u64 lookups;

static __always_inline void *counted_lookup(void *map, const void *key)
{
	lookups++;
	return bpf_map_lookup_elem(map, key);
}

#define bpf_map_lookup_elem counted_lookup
#include "../headgate.bpf.c"
