// Package serial is what a kernel under test says on its serial line: a line a
// step among whatever else the kernel prints.
package serial

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Kinds of steps.
const (
	Release = "release" // Text: what uname says
	Refused = "refused" // Text: why the program could not be loaded
	Loaded  = "loaded"  // Frags, Plain
	Table   = "table"   // Name, Passed, NotRun, Failed
	Check   = "check"   // Name; Failed: what is wrong; Text: why it was not made
	End     = "end"     // all steps were made
)

// Step is one thing that was tried.
type Step struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name,omitempty"`
	Text   string   `json:"text,omitempty"`
	Frags  uint32   `json:"frags,omitempty"` // instructions that the verifier walked, of each program
	Plain  uint32   `json:"plain,omitempty"`
	Passed int      `json:"passed,omitempty"` // frames
	NotRun int      `json:"not_run,omitempty"`
	Failed []string `json:"failed,omitempty"`
}

// mark begins a step's line. The kernel may have left a line unfinished.
const mark = "headgate-step "

// Write writes a step.
func Write(w io.Writer, s Step) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s%s\n", mark, text)
	return err
}

// Read calls step for each step, and other for all other lines, until r ends.
func Read(r io.Reader, step func(Step), other func(line string)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		var s Step
		text, marked := bytes.CutPrefix(line, []byte(mark))
		if marked && json.Unmarshal(text, &s) == nil {
			step(s)
		} else if len(line) > 0 {
			other(string(line))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the serial line: %w", err)
		}
	}
}
