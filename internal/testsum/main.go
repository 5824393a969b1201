// Command testsum runs go test with its arguments, prints a line a package,
// failures in full, why tests were skipped, and last how many passed, failed
// and were skipped. It exits as go test does.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	code, err := run(os.Stdout, exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...))
	if err != nil {
		fmt.Fprintf(os.Stderr, "testsum: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

// run runs cmd, which writes the events of go test -json, and reports on w.
func run(w io.Writer, cmd *exec.Cmd) (code int, err error) {
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("run go test: %w", err)
	}
	sum := newSummary(w)
	readErr := sum.read(events)
	waitErr := cmd.Wait()
	sum.close()
	if readErr != nil {
		return 1, fmt.Errorf("read the events of go test: %w", readErr)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(waitErr, &exit):
		return 1, nil
	case waitErr != nil:
		return 1, fmt.Errorf("run go test: %w", waitErr)
	case sum.failed > 0:
		return 1, nil
	}
	return 0, nil
}
