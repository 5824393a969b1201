package config

import (
	"errors"
	"strings"
	"testing"
)

// mustParse returns the Config of a file that has no fault.
func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("headgate.yaml", []byte(text))
	if err != nil {
		t.Fatalf("Parse:\n%v\nof:\n%s", err, text)
	}
	return c
}

func mustRule(t *testing.T, text string) Rule {
	t.Helper()
	r, err := ParseRule("rule", []byte(text))
	if err != nil {
		t.Fatalf("ParseRule(%s): %v", text, err)
	}
	return r
}

// wantErrors checks that err is Errors that match want one by one, each by its
// start and its parts, which are separated by "…".
func wantErrors(t *testing.T, err error, want ...string) {
	t.Helper()
	var got Errors
	if !errors.As(err, &got) {
		t.Fatalf("got %v, want Errors", err)
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing: %s", want[i])
		case i >= len(want):
			t.Errorf("not expected: %s", got[i])
		case !hasParts(got[i].Error(), want[i]):
			t.Errorf("error %d:\n got: %s\nwant: %s", i, got[i], want[i])
		}
	}
}

func hasParts(s, parts string) bool {
	for i, p := range strings.Split(parts, "…") {
		at := strings.Index(s, p)
		if at < 0 || i == 0 && at != 0 {
			return false
		}
		s = s[at+len(p):]
	}
	return true
}
