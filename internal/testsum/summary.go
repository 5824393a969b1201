package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64
	Output     string
}

// outcome is what became of a test.
type outcome struct {
	action string // pass, fail, skip; empty: it has not ended
	output strings.Builder
	parent bool // it has subtests
}

// summary turns events into the report. A test with subtests is not counted
// beside them, unless it failed and none of them did.
type summary struct {
	w        io.Writer
	packages map[string]*pack
	building map[string]*strings.Builder
	reasons  map[string]int

	passed, failed, skipped int
}

// pack is one package under test.
type pack struct {
	tests  map[string]*outcome
	order  []string
	output strings.Builder // outside of tests
}

func newSummary(w io.Writer) *summary {
	return &summary{
		w:        w,
		packages: make(map[string]*pack),
		building: make(map[string]*strings.Builder),
		reasons:  make(map[string]int),
	}
}

// read takes all events. What is no event is passed on.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(s.w, "%s", line)
			} else {
				s.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) take(e event) {
	switch {
	case e.Action == "build-output":
		if s.building[e.ImportPath] == nil {
			s.building[e.ImportPath] = &strings.Builder{}
		}
		s.building[e.ImportPath].WriteString(e.Output)
	case e.Action == "build-fail":
		if out := s.building[e.ImportPath]; out != nil {
			fmt.Fprintf(s.w, "%s", out)
		}
	case e.Package == "":
	case e.Test != "":
		s.takeTest(s.pack(e.Package), e)
	case e.Action == "output":
		s.pack(e.Package).output.WriteString(e.Output)
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		s.endPackage(e)
	}
}

func (s *summary) pack(name string) *pack {
	p := s.packages[name]
	if p == nil {
		p = &pack{tests: make(map[string]*outcome)}
		s.packages[name] = p
	}
	return p
}

func (s *summary) takeTest(p *pack, e event) {
	t := p.tests[e.Test]
	if t == nil {
		t = &outcome{}
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
		if i := strings.LastIndex(e.Test, "/"); i >= 0 && p.tests[e.Test[:i]] != nil {
			p.tests[e.Test[:i]].parent = true
		}
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		t.action = e.Action
	}
}

// endPackage counts a package's tests and prints its line, and before it
// what failed.
func (s *summary) endPackage(e event) {
	p := s.pack(e.Package)
	delete(s.packages, e.Package)
	ran, failed := 0, 0
	for _, name := range p.order {
		t := p.tests[name]
		switch {
		case t.action == "skip":
			s.skipped++
			s.reasons[reason(t.output.String())]++
		case t.action == "pass" && !t.parent:
			ran++
			s.passed++
		case t.action != "pass" && !p.failedBelow(name):
			// A test without an end was cut off: panic or time out.
			ran++
			failed++
			fmt.Fprintf(s.w, "%s%s", p.above(name), t.output.String())
		}
	}
	if e.Action == "fail" && failed == 0 {
		failed++
		fmt.Fprintf(s.w, "%s", p.output.String())
	} else if e.Action == "fail" && strings.Contains(p.output.String(), "panic:") {
		fmt.Fprintf(s.w, "%s", p.output.String())
	}
	s.failed += failed
	if len(p.order) > 0 || e.Action == "fail" {
		fmt.Fprintf(s.w, "%-5s %s %.1fs, %d tests\n", e.Action, e.Package, e.Elapsed, ran)
	}
}

// failedBelow tells whether a subtest of the test failed or was cut off.
func (p *pack) failedBelow(name string) bool {
	return slices.ContainsFunc(p.order, func(sub string) bool {
		return strings.HasPrefix(sub, name+"/") && (p.tests[sub].action == "fail" || p.tests[sub].action == "")
	})
}

// above returns what the tests printed that the named one is a subtest of.
func (p *pack) above(name string) string {
	var all strings.Builder
	for i, c := range name {
		if t := p.tests[name[:i]]; c == '/' && t != nil {
			all.WriteString(t.output.String())
		}
	}
	return all.String()
}

// close counts what no package event ended, and prints the last lines.
func (s *summary) close() {
	for name := range s.packages {
		s.endPackage(event{Action: "fail", Package: name})
	}
	reasons := make([]string, 0, len(s.reasons))
	for r := range s.reasons {
		reasons = append(reasons, r)
	}
	slices.Sort(reasons)
	for _, r := range reasons {
		fmt.Fprintf(s.w, "skipped %d: %s\n", s.reasons[r], r)
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
}

// reason finds in a skipped test's output what t.Skip was given.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		if _, said, ok := strings.Cut(line, ".go:"); ok {
			if _, said, ok := strings.Cut(said, ": "); ok {
				return said
			}
		}
		return line
	}
	return "no reason given"
}
