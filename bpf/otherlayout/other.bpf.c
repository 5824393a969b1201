// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The network gate as another version might have it: rules' counters have a
 * field more, before the others. For the test that upgrades to it and back.
 */

#define rule_counter rule_counter_of_ours
#include "../types.h"
#undef rule_counter

struct rule_counter {
	__u64 since;
	struct count passed;
	struct count refused;
	struct count watched;
};

#include "../headgate.bpf.c"
