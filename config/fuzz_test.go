package config

import (
	"os"
	"strings"
	"testing"
)

// FuzzParse: no input makes the parser panic, a fault always has a message of
// one line and a place inside the file, and what is accepted reads back.
func FuzzParse(f *testing.F) {
	if data, err := os.ReadFile(reference); err == nil {
		f.Add(data)
	}
	for _, seed := range []string{
		"", "version: 1\n", quiet, "version: 1\nrules: [{name: a, per: [client, key], limit: 5/min}]",
		`{"version": 1, "rules": [{"name": "a", "match": {"path": "/u/{id}"}, "per": "client", "rate": "1.5/s"}]}`,
		"version: 1\nrules:\n- &a {name: a}\n- *a\n<<: *a\n? b\n: c\n", "a: !!str b\n---\n- |\n  c\n", "{{{[[[: ? - & * !",
		"version: 1\nnetwork: {slots: 99999999999999999999}\nblock: [::ffff:1.2.3.4/96, 1.2.3.4/33]\n",
		"version: 1\nmode:\twatch\n\tallow: []\n", "\xef\xbb\xbfversion: 1\r\n", "version: 1\nmode: \xff\x00\n",
		"[{sha256: abc, owner: \"\"}]", "rules: [{name: a, per: source, rate: 9223372036854775807GB/365d, burst: 1kbit}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + 1
		r := &reader{file: "fuzz.yaml", read: func(string, int64) ([]byte, error) { return []byte("[]"), nil }, readKeys: func(string) (*Keyring, error) { return nil, nil }}
		c := r.config(data)
		err := r.errs.sorted("fuzz.yaml").err()
		checkFuzzed(t, err, lines)
		if err == nil {
			Warnings(c)
			for _, r := range c.Rules {
				readsBack(t, r)
			}
		}
		rule, err := ParseRule("fuzz", data)
		checkFuzzed(t, err, lines)
		if err == nil {
			readsBack(t, rule)
		}
		keys := &reader{file: "keys"}
		keys.keyFile(data)
		checkFuzzed(t, keys.errs.err(), lines)
	})
}

func checkFuzzed(t *testing.T, err error, lines int) {
	t.Helper()
	if err == nil {
		return
	}
	for _, e := range err.(Errors) {
		if e.Line < 0 || e.Line > lines || (e.Line == 0) != (e.Col == 0) || e.Col < 0 {
			t.Errorf("place %d:%d in %d lines: %s", e.Line, e.Col, lines, e.Msg)
		}
		if e.Msg == "" || len(e.Msg) > 1000 || strings.ContainsAny(e.Msg, "\n\r\x00\x1b") {
			t.Errorf("message %q", e.Msg)
		}
	}
}

func readsBack(t *testing.T, r Rule) {
	t.Helper()
	again, err := ParseRule("again", []byte(r.Text))
	if err != nil || again.Text != r.Text {
		t.Errorf("%s reads back as %s, %v", r.Text, again.Text, err)
	}
	if WorstCase(r) == "" || CheckRules([]Rule{r}) != nil {
		t.Errorf("%s: no worst case, or at odds with itself", r.Text)
	}
}
