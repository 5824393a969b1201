/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Every map: its key and value, who writes it and who reads it. All are
 * pinned. Sizes that depend on the configuration are set by Go before load.
 */
#pragma once

#include "types.h"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* The bucket table. Program: reads and writes. Daemon: maps it into memory,
 * reads levels, sweeps dead slots.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 262144);
	__type(key, __u32);
	__type(value, struct line);
} buckets SEC(".maps");

/* Overflow buckets by counter index. Program: reads and writes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_COUNTERS);
	__type(key, __u32);
	__type(value, struct overflow);
} overflows SEC(".maps");

/* Daemon: writes. Program: reads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

/* Daemon only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct meta);
} metas SEC(".maps");

/* Two generations of each table, the second after the first. Daemon: writes
 * the idle one. Program: reads the one that controls names.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * PLACES / CLASSES);
	__type(key, __u32);
	__type(value, struct class_group);
} classes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_CELLS / CLASSES);
	__type(key, __u32);
	__type(value, struct class_group);
} crossings SEC(".maps");

/* Classes of interfaces by index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct interface_key);
	__type(value, __u16);
} interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_SETS);
	__type(key, __u32);
	__type(value, struct limit_set);
} limit_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_LIMITS);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

/* More of some limits. Two generations, like limits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_EXTRAS);
	__type(key, __u32);
	__type(value, struct extra);
} extras SEC(".maps");

/* Until when, in ticks, a source is known whatever its bucket. Daemon: writes.
 * Program: reads, only when what unknown sources take together is spent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__type(key, struct source_key);
	__type(value, __u64);
} vouches SEC(".maps");

/* Sources that were blocked here. Program: writes one a block. Daemon: reads,
 * and writes the lasting entry.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} events SEC(".maps");

/* Which id and which counters a limit has. Daemon only. Ids are never given
 * twice: a dead limit's slots name nobody.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COUNTERS);
	__type(key, struct limit_name);
	__type(value, struct limit_id);
} limit_ids SEC(".maps");

/* What holds by prefix, as a source and as a destination. Daemon: maps them into
 * memory and writes. Program: reads. They grow with what they hold: a larger
 * one comes with the program anew.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct prefix_line4);
} prefixes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct prefix_line6);
} prefixes6 SEC(".maps");

/* By the first bits of an address: the lengths that are worth a look. Written
 * like the above.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, (1 << ROOT4_BITS) / ROOT_GROUP);
	__type(key, __u32);
	__type(value, struct root_group);
} roots4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, (1 << ROOT6_BITS) / ROOT_GROUP);
	__type(key, __u32);
	__type(value, struct root_group);
} roots6 SEC(".maps");

/* The host's own addresses. Daemon: writes. Program: reads, for errors that
 * quote a packet of ours.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct own_address);
	__type(value, __u8);
} own_addresses SEC(".maps");

/* Program: counts. Daemon: reads; clears a rule's entry when the index is
 * given to another rule.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_COUNTERS);
	__type(key, __u32);
	__type(value, struct rule_counter);
} rule_counters SEC(".maps");

/* What becomes of packets, sampled: a ring for each CPU. Program: writes, and
 * waits for nobody. Daemon: maps them into memory and reads.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_ring);
} samples SEC(".maps");

/* Dropped frames, while somebody captures them. Likewise. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_ring);
} captures SEC(".maps");
