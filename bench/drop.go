package main

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// bareDrop is a program that does nothing but drop.
func bareDrop() (*ebpf.Program, error) {
	const xdpDrop = 1
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()},
	})
}
