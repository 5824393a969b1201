/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The bucket: GCRA (ITU-T I.371, virtual scheduling) on one theoretical
 * arrival time. State in, time in, answer out; no map and no helper call.
 * limit/bucket.go is the same in Go, and a test holds one against the other.
 */
#pragma once

#include "types.h"

static __always_inline __u64 bucket_cost(__u64 length, __u64 mult, __u8 shift)
{
	/* shift is at most 47; the mask tells the verifier */
	shift &= 63;
	return (length * mult + ((1ULL << shift) >> 1)) >> shift;
}

/* How far ahead of now the bucket is; times compare as signed differences. */
static __always_inline __u64 bucket_debt(__u64 tat, __u64 now)
{
	__s64 ahead = tat - now;

	return ahead > 0 ? ahead : 0;
}

/* True if cost fits; then *next is the TAT to store. A refusal costs nothing. */
static __always_inline bool bucket_take(__u64 tat, __u64 now, __u64 cost,
					__u64 burst, __u64 *next)
{
	__u64 ahead = bucket_debt(tat, now) + cost;

	*next = now + ahead;
	return ahead <= burst;
}
