package maps

import (
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Memory is how many bytes of kernel memory the maps of a gate with that many
// slots take when they are made, on this number of CPUs. Prefixes and what else
// is added one by one come on top. Hashes have about 64 bytes of their own an
// entry (struct htab_elem and its bucket, Linux 6.18).
func Memory(slots uint32) (uint64, error) {
	spec, err := loadBpf()
	if err != nil {
		return 0, fmt.Errorf("read the embedded program: %w", err)
	}
	if err := resize(spec, Options{Slots: slots}); err != nil {
		return 0, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, fmt.Errorf("count CPUs: %w", err)
	}
	const own = 64
	var sum uint64
	for _, m := range spec.Maps {
		entries, value := uint64(m.MaxEntries), uint64(m.ValueSize+7)&^7
		switch {
		case m.Flags&unix.BPF_F_NO_PREALLOC != 0:
		case m.Type == ebpf.RingBuf:
			sum += entries
		case m.Type == ebpf.PerCPUArray:
			sum += entries * value * uint64(cpus)
		case m.Type == ebpf.Hash:
			sum += entries * (uint64(m.KeySize+7)&^7 + value + own)
		default:
			sum += entries * value
		}
	}
	return sum, nil
}
