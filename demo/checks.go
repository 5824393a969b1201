package main

import (
	"fmt"
	"io"
	"math"
)

// check is one thing that the demo promises.
type check struct {
	What  string
	OK    bool
	Found string
}

// tolerance is how far the flood may be from its rate.
const tolerance = 0.03

// checks judges a whole run.
func (p plan) checks(r result) []check {
	return []check{
		p.floodCut(r),
		p.noLoss(r),
		p.pagesServed(r.pages),
		p.keyHeld(r.greedy),
		r.patience.check(),
	}
}

func (p plan) floodCut(r result) check {
	want := p.packetsIn(r.flood.Elapsed())
	got := float64(r.arrived.From(p.Attacker).Packets)
	off := got/want - 1
	return check{
		What: "flood cut to its rate within 3 %",
		OK:   r.flood.Packets > 0 && math.Abs(off) <= tolerance,
		Found: fmt.Sprintf("%.0f of %d packets passed; burst + rate·T is %.0f (%+.2f %%)",
			got, r.flood.Packets, want, 100*off),
	}
}

func (p plan) noLoss(r result) check {
	got := r.arrived.From(p.Good)
	return check{
		What:  "good client loses no packet",
		OK:    r.calm.Packets > 0 && got.Packets == r.calm.Packets && got.Missing == 0 && got.Duplicates == 0,
		Found: fmt.Sprintf("%d of %d packets passed", got.Packets, r.calm.Packets),
	}
}

func (p plan) pagesServed(a answers) check {
	return check{
		What:  "good client gets every page",
		OK:    a.Served > 0 && a.Refused == 0 && a.Other == 0,
		Found: fmt.Sprintf("%d answers 200, %d answers 429%s", a.Served, a.Refused, a.trouble()),
	}
}

// keyHeld allows the one request that was on its way when the demo ended.
func (p plan) keyHeld(a answers) check {
	most := p.requestsIn(a.Last.Sub(a.First))
	return check{
		What: "API key's excess is answered 429",
		OK:   a.Refused > 0 && a.Other == 0 && float64(a.Served) <= most && float64(a.Served) >= math.Floor(most)-1,
		Found: fmt.Sprintf("%d answers 200 (burst + rate·T is %.1f), %d answers 429 with Retry-After%s",
			a.Served, most, a.Refused, a.trouble()),
	}
}

func (a answers) trouble() string {
	if a.Other == 0 {
		return ""
	}
	return fmt.Sprintf(", %d other, the last: %s", a.Other, a.Trouble)
}

// report prints the checks and tells whether all of them hold.
func report(w io.Writer, checks []check) bool {
	all := true
	fmt.Fprintln(w)
	for _, c := range checks {
		mark := "ok  "
		if !c.OK {
			mark, all = "FAIL", false
		}
		fmt.Fprintf(w, "%s  %-34s %s\n", mark, c.What, c.Found)
	}
	return all
}
