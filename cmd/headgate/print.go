package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// asJSON prints v and reports whether that is what was asked for.
func (e *env) asJSON(v any) (bool, error) {
	if e.output != "json" {
		return false, nil
	}
	enc := json.NewEncoder(e.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return true, enc.Encode(v)
}

// table prints rows in columns; the first row is the head.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	w.Flush()
}

func (e *env) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(e.out, "warning: "+w)
	}
}

// moment writes a time; the zero time is never.
func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// address writes a single address without its length.
func address(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// plural writes n of what, as 1 source, 2 sources.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// printable is s without what a terminal would obey: names and paths are what
// strangers sent.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
