package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/headgate/headgate/internal/rig"
)

// RC-114: of a program that the kernel refuses, all that its verifier said is
// kept, and the error names the file.
func TestVerifierLogIsKept(t *testing.T) {
	rig.RequireRoot(t)
	_, refused := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.LoadMem(asm.R0, asm.R1, 4096, asm.Word), asm.Return()},
	})
	if refused == nil {
		t.Fatal("the kernel takes a program that reads behind its context")
	}
	dir := t.TempDir()
	err := keepVerifierLog(dir, fmt.Errorf("load: %w", refused))
	kept, read := os.ReadFile(filepath.Join(dir, verifierLog))
	if read != nil || !strings.Contains(string(kept), "invalid bpf_context access") {
		t.Errorf("kept: %q, %v", kept, read)
	}
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), dir) {
		t.Errorf("it says: %v", err)
	}
	if err := keepVerifierLog(filepath.Join(dir, "none"), refused); !errors.Is(err, refused) || !strings.Contains(err.Error(), "could not be kept") {
		t.Errorf("where it cannot be kept: %v", err)
	}
	if other := errors.New("no room"); keepVerifierLog(dir, other) != other {
		t.Error("another error is changed")
	}
}
