package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/daemon"
)

func screenOf(width, n int, rows ...daemon.TopRow) *topScreen {
	at := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	s := &topScreen{flags: topFlags{window: "10s", sort: "refused"}, now: func() time.Time { return at }, width: width, n: n}
	s.show(daemon.Top{Rows: rows})
	return s
}

func packetRow(source string, passed, refused uint64) daemon.TopRow {
	return daemon.TopRow{
		Gate: "network", Rule: "per-source", Source: netip.MustParsePrefix(source),
		Verdicts: daemon.Verdicts{Passed: passed, Refused: refused}, Seconds: 10, FullIn: 12,
	}
}

var keyRow = daemon.TopRow{Gate: "http", Rule: "search", Key: "0123456789ab", Owner: "acme", Verdicts: daemon.Verdicts{Passed: 50}, Seconds: 10}

// plainText takes the colours away.
func plainText(lines []string) string {
	return strings.NewReplacer(bold, "", reverse, "", plain, "").Replace(strings.Join(lines, "\n"))
}

// No line is wider than the terminal and none is below it, whatever its size and
// however long the names.
func TestScreenFits(t *testing.T) {
	long := packetRow("2001:db8:ffff:ffff::/64", 1<<40, 1<<50)
	long.Rule = strings.Repeat("a-long-name", 5)
	for _, width := range []int{40, 80, 81, 200} {
		for _, n := range []int{5, 24, 50} {
			rows := []daemon.TopRow{long, keyRow}
			for range 60 {
				rows = append(rows, packetRow("203.0.113.9/32", 5, 100000))
			}
			s := screenOf(width, n, rows...)
			s.picked = len(rows) - 1
			lines := strings.Split(plainText(s.lines()), "\n")
			if len(lines) > n {
				t.Errorf("%d lines on a terminal of %d", len(lines), n)
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l) > width {
					t.Errorf("at %d columns a line has %d: %q", width, utf8.RuneCountInString(l), l)
				}
			}
		}
	}
	// at 80 columns addresses and figures are whole
	text := plainText(screenOf(80, 24, packetRow("2001:db8:1234:5678::/64", 20, 123456)).lines())
	for _, want := range []string{"2001:db8:1234:5678::/64", "per-source", "12k", "12s", "2.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
}

// Keys pick, sort, choose a gate, hold still and quit; a block is asked for
// first, and no key or user can be blocked.
func TestScreenKeys(t *testing.T) {
	s := screenOf(80, 24, packetRow("203.0.113.9/32", 1, 900), packetRow("203.0.113.7/32", 50, 5), keyRow)
	press := func(keys string, want topAction) {
		t.Helper()
		got := topNothing
		for _, k := range decodeKeys([]byte(keys)) {
			got = s.press(k)
		}
		if got != want {
			t.Errorf("%q asks for %d, want %d", keys, got, want)
		}
	}
	press("\x1b[B\x1b[B\x1b[B\x1b[B", topNothing)
	if s.picked != 2 {
		t.Errorf("row %d is picked, want the last", s.picked)
	}
	press("b", topNothing)
	if s.asking || !strings.Contains(s.foot(), "no address") {
		t.Errorf("a key is to be blocked: %s", s.foot())
	}
	press("\x1bOA", topNothing)
	press("b", topNothing)
	if foot := s.foot(); foot != "block 203.0.113.7 for 10m? y/n" {
		t.Errorf("asks %q", foot)
	}
	press("n", topNothing)
	press("b", topNothing)
	press("y", topDoBlock)
	press("s", topNothing)
	if s.flags.sort != "passed" || s.rows[0].Source.String() != "203.0.113.7/32" {
		t.Errorf("by %s the first is %v", s.flags.sort, s.rows[0].Source)
	}
	press("g", topNothing)
	if s.flags.gate != "network" {
		t.Errorf("gate %q", s.flags.gate)
	}
	press(" ", topNothing)
	s.show(daemon.Top{})
	if len(s.rows) != 3 {
		t.Error("paused rows change")
	}
	press(" ", topNothing)
	s.picked = 2
	s.show(daemon.Top{Rows: []daemon.TopRow{keyRow, packetRow("203.0.113.9/32", 1, 1), packetRow("203.0.113.1/32", 1, 1)}})
	if s.picked != 1 {
		t.Errorf("row %d is picked, want that of 203.0.113.9", s.picked)
	}
	press("q", topQuit)
}

// What strangers send does not reach the terminal as commands.
func TestNothingIsObeyed(t *testing.T) {
	row := keyRow
	row.User = "bob\x1b[2J\x9b1m\r\n"
	e := daemon.Event{Gate: "http", Rule: "r", Method: "GET", Path: "/\x1b]0;x\x07", User: row.User}
	for _, text := range []string{whoIs(row), eventLine(e)} {
		if strings.ContainsAny(text, "\x1b\x07\r\n\u009b") || !strings.Contains(text, "bob?[2J") {
			t.Errorf("%q", text)
		}
	}
}

func TestShort(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.04: "0.0", 2.25: "2.2", 9.96: "10", 9999: "9999", 123456: "123k", 4.2e6: "4.2M", 1e9: "1.0G",
	} {
		if got := short(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}
