package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// screen shows how the demo goes: a table that is drawn anew on a terminal,
// else a line a second.
type screen struct {
	w        io.Writer
	terminal bool
	plan     plan
	drawn    int // lines on the terminal
}

func newScreen(f *os.File, p plan) *screen {
	info, err := f.Stat()
	return &screen{w: f, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, plan: p}
}

// follow shows t until ctx ends.
func (s *screen) follow(ctx context.Context, t *traffic) {
	every := time.Second
	if s.terminal {
		every = time.Second / 5
	}
	start := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			s.show(t.view(min(time.Since(start), s.plan.Duration)))
			return
		case <-tick.C:
			s.show(t.view(min(time.Since(start), s.plan.Duration)))
		}
	}
}

func (s *screen) show(v view) {
	if !s.terminal {
		fmt.Fprintf(s.w, "%4.0f s  attacker sent %d passed %d dropped %d | good client sent %d passed %d dropped %d, pages 200 %d 429 %d | key 200 %d 429 %d\n",
			v.Elapsed.Seconds(), v.Flood.Sent, v.Flood.Passed, v.Flood.Dropped(),
			v.Calm.Sent, v.Calm.Passed, v.Calm.Dropped(),
			v.Pages.Served, v.Pages.Refused, v.Greedy.Served, v.Greedy.Refused)
		return
	}
	text := s.table(v)
	if s.drawn > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = strings.Count(text, "\n")
	io.WriteString(s.w, text)
}

func (s *screen) table(v view) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f s of %.0f s\n\n", v.Elapsed.Seconds(), s.plan.Duration.Seconds())
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', tabwriter.AlignRight)
	p := s.plan
	packets := func(who string, limit int, rate float64, from fmt.Stringer, f flow) {
		fmt.Fprintf(t, "%-12s\t%v\t%.0f/s\t%d/s\t%d\t%d\t%d\t\n", who, from, rate, limit, f.Sent, f.Passed, f.Dropped())
	}
	fmt.Fprintf(t, "network gate\tsource\tsends\tlimit\tsent\tpassed\tdropped\t\n")
	packets("attacker", p.PacketRate, p.FloodRate, p.Attacker, v.Flood)
	packets("good client", p.PacketRate, p.CalmRate, p.Good, v.Calm)
	fmt.Fprintf(t, "\t\t\t\t\t\t\t\n")
	requests := func(who, limit string, every time.Duration, from fmt.Stringer, a answers) {
		fmt.Fprintf(t, "%-12s\t%v\t%.0f/s\t%s\t%d\t%d\t%d\t\n", who, from, 1/every.Seconds(), limit,
			a.Served+a.Refused+a.Other, a.Served, a.Refused)
	}
	fmt.Fprintf(t, "HTTP gate   \tclient\tasks\tlimit\tasked\t200\t429\t\n")
	requests("good client", fmt.Sprintf("%d/s", p.PageRate), p.PageEvery, p.Good, v.Pages)
	requests("greedy key", fmt.Sprintf("%d/min", p.KeyRate), p.KeyEvery, p.Caller, v.Greedy)
	t.Flush()
	return b.String()
}
