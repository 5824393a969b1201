package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// buildHeadgate builds the binary where the HTTP gate's user can run it.
func buildHeadgate(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "headgate")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../cmd/headgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build headgate: %v\n%s", err, out)
	}
	return binary
}

// left returns what this process has left behind of namespaces and pins.
func left(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"/run/netns", "/sys/fs/bpf"} {
		found, err := filepath.Glob(fmt.Sprintf("%s/headgate-test-%d-*", dir, os.Getpid()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func output(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestDemoHoldsAndCleansUp(t *testing.T) {
	rig.RequireRoot(t)
	out := output(t)
	err := run(context.Background(), newPlan(5*time.Second), buildHeadgate(t), out)
	text, _ := os.ReadFile(out.Name())
	if err != nil {
		t.Errorf("demo: %v\n%s", err, text)
	}
	if n := bytes.Count(text, []byte("ok    ")); n != 5 {
		t.Errorf("%d checks are ok, want 5:\n%s", n, text)
	}
	if rest := left(t); len(rest) != 0 {
		t.Errorf("left behind: %v", rest)
	}
}

func TestInterruptedDemoCleansUp(t *testing.T) {
	rig.RequireRoot(t)
	out := output(t)
	ctx, interrupt := context.WithCancelCause(context.Background())
	why := errors.New("interrupted")
	p := newPlan(time.Hour)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		// Once the first line of traffic is there, everything runs.
		for ctx.Err() == nil {
			text, err := os.ReadFile(out.Name())
			if err == nil && bytes.Contains(text, []byte("attacker sent")) {
				interrupt(why)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	err := run(ctx, p, buildHeadgate(t), out)
	interrupt(nil)
	<-shown
	if !errors.Is(err, why) {
		text, _ := os.ReadFile(out.Name())
		t.Errorf("demo ended with %v, want %v\n%s", err, why, text)
	}
	if rest := left(t); len(rest) != 0 {
		t.Errorf("left behind: %v", rest)
	}
}
