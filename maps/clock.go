package maps

import (
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// ticksPerNano: a tick is 1/64 ns.
const ticksPerNano = 64

// cachedClockPays measures whether bpf_ktime_get_ns costs more than looking
// whether jiffies have moved. Where the clock source is slow (many virtual
// machines) it does by far. If it cannot be measured the clock is exact.
func cachedClockPays() bool {
	exact, err := timeHelper(asm.FnKtimeGetNs)
	if err != nil {
		return false
	}
	jiffies, err := timeHelper(asm.FnJiffies64)
	if err != nil {
		return false
	}
	// what the cache's own bookkeeping costs
	const margin = 3 * time.Nanosecond
	return exact > jiffies+margin
}

// timeHelper returns what one call of a helper costs in the kernel, the best
// of some rounds.
func timeHelper(fn asm.BuiltinFunc) (time.Duration, error) {
	const calls, runs, rounds = 8, 5000, 5
	var code asm.Instructions
	for range calls {
		code = append(code, fn.Call())
	}
	code = append(code, asm.Mov.Imm(asm.R0, 1), asm.Return())
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: code})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	best := time.Duration(1<<63 - 1)
	for range rounds {
		_, d, err := program.Benchmark(make([]byte, 64), runs, nil)
		if err != nil {
			return 0, err
		}
		best = min(best, d)
	}
	return best / calls, nil
}
