package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one fault of a configuration, at a place in a file. Line and
// column count from 1; a column counts characters, not bytes. Line 0 means the
// file as a whole.
type Error struct {
	File      string
	Line, Col int
	Msg       string
}

// Error returns "file:line:col: message".
func (e Error) Error() string {
	switch {
	case e.Line == 0 && e.File == "":
		return e.Msg
	case e.Line == 0:
		return e.File + ": " + e.Msg
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Errors is every fault that was found, sorted by place, the faults of the
// configuration itself before those of the files that it names.
type Errors []Error

// shownErrors bounds what Error prints: a generated list of a hundred thousand
// bad prefixes must not bury the terminal. The slice itself is complete.
const shownErrors = 100

// Error returns one fault a line.
func (e Errors) Error() string {
	var b strings.Builder
	for i, one := range e {
		if i == shownErrors {
			fmt.Fprintf(&b, "\nand %d more", len(e)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(one.Error())
	}
	return b.String()
}

// sorted orders the faults by place, those of first before other files'.
func (e Errors) sorted(first string) Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		if a.File != b.File {
			switch first {
			case a.File:
				return -1
			case b.File:
				return 1
			}
			return strings.Compare(a.File, b.File)
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	return e
}

// err returns e as an error, nil when there is none: a nil slice in an error
// interface would not be nil.
func (e Errors) err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// quote shows text from outside in a message: escaped, and cut when it is long.
func quote(s string) string {
	const most = 48
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}
