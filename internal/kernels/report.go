package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// oldest is what maps.Open says to a kernel that is too old.
const oldest = "Linux 6.1 is the oldest supported"

// limit is how many instructions the verifier walks before it gives up, since
// Linux 5.2.
const limit = 1_000_000

// row is what became of one series.
type row struct {
	series series
	run    *run
	err    error
}

// faults are what went wrong, nothing if all is as it must be.
func (r row) faults() (faults []string) {
	if r.err != nil {
		faults = append(faults, r.err.Error())
	}
	if r.run == nil {
		return faults
	}
	if r.series.refused {
		if !strings.Contains(r.run.refused, oldest) {
			faults = append(faults, fmt.Sprintf("it must refuse the program and say %q; it says %q", oldest, r.run.refused))
		}
		return append(faults, r.run.trouble...)
	}
	if r.run.refused != "" {
		faults = append(faults, "the program is refused: "+r.run.refused)
	}
	for _, s := range append(r.run.tables, r.run.checks...) {
		if len(s.Failed) > 0 {
			faults = append(faults, s.Name+" failed")
		}
	}
	if !r.run.ended {
		faults = append(faults, "the machine ended before its last step; it last said:\n    "+strings.Join(r.run.last, "\n    "))
	}
	return append(faults, r.run.trouble...)
}

// cells are the row's in the table.
func (r row) cells() []string {
	cells := []string{r.series.name, "not had", "-", "-", "-", "-"}
	if r.run == nil {
		return cells
	}
	if r.run.release != "" {
		cells[0] = r.run.release
	}
	cells[1] = "no"
	if r.series.refused && len(r.faults()) == 0 {
		cells[1] = "refused, as it must"
	}
	if r.run.loaded != nil {
		cells[1] = "yes"
		n := max(r.run.loaded.Frags, r.run.loaded.Plain)
		cells[2] = fmt.Sprintf("%d (%d %% of what is allowed)", n, n*100/limit)
	}
	passed, frames, notRun := 0, 0, 0
	for _, t := range r.run.tables {
		frames += t.Passed
		notRun += t.NotRun
		if len(t.Failed) == 0 {
			passed++
		}
	}
	if n := len(r.run.tables); n > 0 {
		cells[3] = fmt.Sprintf("%d of %d", passed, n)
		cells[4] = fmt.Sprintf("%d, %d not run", frames, notRun)
	}
	made := 0
	for _, c := range r.run.checks {
		if len(c.Failed) == 0 && c.Text == "" {
			made++
		}
	}
	if n := len(r.run.checks); n > 0 {
		cells[5] = fmt.Sprintf("%d of %d", made, n)
	}
	return cells
}

// printRows prints the table and the faults, and tells whether there are none.
func printRows(w io.Writer, rows []row) bool {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KERNEL\tLOADED\tINSTRUCTIONS\tTABLES PASSED\tFRAMES\tCHECKS PASSED")
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r.cells(), "\t"))
	}
	t.Flush()
	ok := true
	for _, r := range rows {
		for _, f := range r.faults() {
			ok = false
			fmt.Fprintf(w, "%s: %s\n", r.cells()[0], f)
		}
	}
	return ok
}
