/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Time in ticks. The cached clock is read again after CLOCK_PACKETS packets or
 * when jiffies have moved: a clock that lags makes a limit stricter while it
 * lags, and lets at most min(burst, CLOCK_PACKETS) more through a CPU later.
 */
#pragma once

#include "maps.h"

#define CLOCK_PACKETS	32

volatile const __u64 epoch;		/* CLOCK_MONOTONIC ns of tick 0 */
volatile const bool cached_clock;	/* it pays on this machine */
volatile const bool fixed_clock;	/* tests: controls.now is the time */

static __always_inline __u64 clock_read(struct cpu *cpu, struct control *control)
{
	if (fixed_clock)
		return cpu->now = control->now;
	cpu->now = (bpf_ktime_get_ns() - epoch) << 6;
	cpu->left = CLOCK_PACKETS;
	return cpu->now;
}

static __always_inline __u64 clock_cached(struct cpu *cpu, struct control *control)
{
	__u64 jiffies;

	if (!cached_clock || fixed_clock)
		return clock_read(cpu, control);
	jiffies = bpf_jiffies64();
	if (cpu->left == 0 || cpu->jiffies != jiffies) {
		cpu->jiffies = jiffies;
		clock_read(cpu, control);
	}
	cpu->left--;
	return cpu->now;
}
