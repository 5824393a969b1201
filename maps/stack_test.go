package maps

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// stackOf is how many bytes of stack the first function of a program uses: the
// lowest place that it reads, writes or hands on.
func stackOf(p *ebpf.ProgramSpec) (depth int16) {
	for i, ins := range p.Instructions {
		if i > 0 && ins.Symbol() != "" && ins.Symbol() != p.Name && isFunction(p, ins.Symbol()) {
			break
		}
		class := ins.OpCode.Class()
		switch {
		case class.IsLoad() && ins.Src == asm.R10, class.IsStore() && ins.Dst == asm.R10:
			depth = max(depth, -ins.Offset)
		case ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource && ins.Constant < 0 && i > 0 &&
			p.Instructions[i-1].OpCode.ALUOp() == asm.Mov && p.Instructions[i-1].Src == asm.R10:
			depth = max(depth, int16(-ins.Constant))
		}
	}
	return depth
}

// isFunction reports whether symbol is called somewhere, or a jump's target only.
func isFunction(p *ebpf.ProgramSpec, symbol string) bool {
	for _, ins := range p.Instructions {
		if ins.IsFunctionCall() && ins.Reference() == symbol {
			return true
		}
	}
	return false
}

// The program's own stack stays within what the longest chain of calls below it
// leaves of 512 bytes, in the way that Linux 6.1 counts: in steps of 32 bytes a
// function. Newer kernels take more, so that else only `make test-kernels` tells.
func TestStackFitsLinux61(t *testing.T) {
	const most = 160
	for name, read := range map[string]func() (*ebpf.CollectionSpec, error){"headgate": loadBpf, "cover": loadCover} {
		spec, err := read()
		if err != nil {
			t.Fatal(err)
		}
		if depth := stackOf(spec.Programs[name]); depth < 72 || depth > most {
			t.Errorf("%s takes %d bytes of stack, %d is the most that Linux 6.1 leaves it", name, depth, most)
		}
	}
}
