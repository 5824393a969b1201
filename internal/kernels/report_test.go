package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/kernels/serial"
)

// hear makes a run of what a machine prints.
func hear(t *testing.T, output string) *run {
	t.Helper()
	r := &run{}
	if err := serial.Read(strings.NewReader(output), func(s serial.Step) { r.note(s) }, r.other); err != nil {
		t.Fatal(err)
	}
	return r
}

// line is how a machine prints steps.
func line(t *testing.T, steps ...serial.Step) string {
	t.Helper()
	var b bytes.Buffer
	for _, s := range steps {
		if err := serial.Write(&b, s); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(b.String(), "\n", "\r\n") // as a serial line does
}

var (
	good = []serial.Step{
		{Kind: serial.Release, Text: "6.1.0-50"}, {Kind: serial.Loaded, Frags: 250_000, Plain: 240_000},
		{Kind: serial.Table, Name: "vlan", Passed: 40, NotRun: 2}, {Kind: serial.Check, Name: "veth"}, {Kind: serial.End},
	}
	refusal = serial.Step{Kind: serial.Refused, Text: "load the XDP program: " + oldest}
)

// What a kernel prints of its own does not hide a step.
func TestStepsAmongNoise(t *testing.T) {
	r := hear(t, "[ 0.1] booting"+line(t, good...)+"[ 5.0] reboot: Restarting system")
	if r.release != "6.1.0-50" || r.loaded == nil || len(r.tables) != 1 || len(r.checks) != 1 || !r.ended || len(r.last) != 2 {
		t.Errorf("heard %+v", r)
	}
}

// Each of these is a fault and is named; nothing else is one.
func TestFaults(t *testing.T) {
	modern, old := series{name: "6.1"}, series{name: "5.10", refused: true}
	with := func(s serial.Step) string { return line(t, append(good[:4:4], s, good[4])...) }
	for _, c := range []struct {
		name string
		row  row
		want string // "" for none
	}{
		{"all passed", row{series: modern, run: hear(t, line(t, good...))}, ""},
		{"a check that can't be made", row{series: modern, run: hear(t, with(serial.Step{Kind: serial.Check, Name: "bond", Text: "no module"}))}, ""},
		{"too old, and says so", row{series: old, run: hear(t, line(t, good[0], refusal))}, ""},
		{"too old, and says something else", row{series: old, run: hear(t, line(t, serial.Step{Kind: serial.Refused, Text: "EINVAL"}))}, oldest},
		{"too old, and loads", row{series: old, run: hear(t, line(t, good...))}, oldest},
		{"refused", row{series: modern, run: hear(t, line(t, good[0], refusal))}, "is refused"},
		{"not had", row{series: modern, err: errors.New("the archive has no kernel")}, "no kernel"},
		{"a table failed", row{series: modern, run: hear(t, with(serial.Step{Kind: serial.Table, Name: "shapes", Failed: []string{"x"}}))}, "shapes failed"},
		{"a check failed", row{series: modern, run: hear(t, with(serial.Step{Kind: serial.Check, Name: "bond", Failed: []string{"x"}}))}, "bond failed"},
		{"it stopped halfway", row{series: modern, run: hear(t, line(t, good[:3]...)+"hung at last")}, "hung at last"},
		{"the kernel complains", row{series: modern, run: hear(t, line(t, good...)+"BUG: unable to handle page fault")}, "page fault"},
	} {
		got := strings.Join(c.row.faults(), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: faults %q, want %q", c.name, got, c.want)
		}
		if ok := printRows(io.Discard, []row{c.row}); ok != (c.want == "") {
			t.Errorf("%s: the whole run is ok: %t", c.name, ok)
		}
	}
}

func TestTableOfRuns(t *testing.T) {
	var b bytes.Buffer
	printRows(&b, []row{
		{series: series{name: "5.10", refused: true}, run: hear(t, line(t, refusal))},
		{series: series{name: "6.1"}, run: hear(t, line(t, good...))},
		{series: series{name: "6.18"}, err: errors.New("no network")},
	})
	for _, want := range []string{"refused, as it must", "250000 (25 % of what is allowed)", "1 of 1", "40, 2 not run", "not had", "6.18: no network"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, b.String())
		}
	}
}
