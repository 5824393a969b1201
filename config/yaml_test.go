package config

import (
	"strings"
	"testing"
)

func TestSyntaxFaults(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "c.yaml: the file is empty: start it with `version: 1`"},
		{"comment only", "# nothing\n", "c.yaml: the file is empty"},
		{"a list", "- version: 1\n", "c.yaml:1:1: the file is a mapping, not a list"},
		{"a word", "hello\n", "c.yaml:1:1: the file is a mapping, not a word"},
		{"tab", "version: 1\nrules:\n\t- name: a\n", "c.yaml:3:1: tab in the indentation: use spaces"},
		{"tabs", "version: 1\nnetwork:\n\tslots: 4096\n  \tattach_mode: auto\n",
			"c.yaml:3:1: tab in the indentation: use spaces\nc.yaml:4:3: tab in the indentation: use spaces"},
		{"open bracket", "version: 1\nblock: [192.0.2.1\n", "c.yaml:2:8: not YAML: "},
		{"open quote", "version: 1\nmode: \"watch\n", "c.yaml:2:7: not YAML: "},
		{"two colons", "version: 1\nmode: watch: now\n", "c.yaml:2:7: not YAML: …quote a word"},
		{"braces", "version: 1\nrules: [{path: /u/{id}}]\n", "c.yaml:2:19: not YAML: …quote a path that has braces"},
		{"star", "version: 1\nrules:\n- {name: a, per: client, rate: 1/s, match: {host: *.example.com}}\n", "c.yaml:3:51: …quote a word that starts with *"},
		{"anchor", "version: 1\nallow: &a [192.0.2.1]\nblock: *a\n", "c.yaml:2:8: …anchor or alias…\nc.yaml:3:8: …anchor or alias"},
		{"text block with odd header", "version: 1\nmode: |secret\n  watch\n", "c.yaml:2:7: not YAML: invalid header option"},
		{"tag", "version: 1\nmode: !!str watch\n", "c.yaml:2:7: `mode` takes a word, not a tag"},
		{"merge", "version: 1\n<<: {mode: watch}\n", "c.yaml:2:1: merge key"},
		{"complex key", "version: 1\n? mode\n: watch\n", "c.yaml:2:1: a key is a plain word"},
		{"text block", "version: 1\nmode: |\n  watch\n", "c.yaml:2:7: `mode` takes a word, not a block of text"},
		{"two lines", "version: 1\nallow: [192.0.2.1\n  192.0.2.2]\n", "c.yaml:2:9: \"192.0.2.1 192.0.2.2\" is no address prefix"},
		{"second document", "version: 1\n---\nmode: watch\n", "c.yaml:3:1: second document"},
		{"not UTF-8", "version: 1\nmode: \xff\n", "c.yaml:2:7: not UTF-8"},
		{"lone carriage return", "version: 1\rmode: a\n", "c.yaml:1:11: control character U+000D"},
		{"zero byte", "version: 1\nmode: a\x00\n", "c.yaml:2:8: control character U+0000"},
		{"escape", "version: 1\nmode: \x1b[31m\n", "c.yaml:2:7: control character U+001B"},
		{"line separator", "version: 1\nmode: a\u2028b\n", "c.yaml:2:8: control character U+2028"},
		{"deep brackets", "version: 1\nblock: " + strings.Repeat("[", 1<<16), "c.yaml:2:72: not YAML: nested too deeply"},
		{"deep braces", strings.Repeat("{a: ", 1<<16), "c.yaml:1:257: not YAML: nested too deeply"},
		{"deep dashes", strings.Repeat("- ", 1<<16), "c.yaml:1:129: not YAML: nested too deeply"},
		{"many questions", strings.Repeat("? ", 1<<16), "c.yaml:1:129: not YAML: nested too deeply"},
		{"many tags", strings.Repeat("!a\n", 1<<16) + "x", "c.yaml:65:1: not YAML: nested too deeply"},
		{"too large", strings.Repeat("#\n", largestFile/2+1), "c.yaml: 16777218 bytes: the most that is read is 16777216"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse("c.yaml", []byte(tc.in))
			if err == nil {
				t.Fatal("accepted")
			}
			if !hasParts(err.Error(), tc.want) || strings.Count(err.Error(), "\n") != strings.Count(tc.want, "\n") {
				t.Errorf("\n got: %v\nwant: %s", err, tc.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the message repeats the file: %v", err)
			}
		})
	}
}

func TestSyntaxAccepted(t *testing.T) {
	for _, tc := range []struct{ name, in string }{
		{"byte order mark", "\xef\xbb\xbfversion: 1\nmode: watch\n"},
		{"carriage returns", "version: 1\r\nmode: watch\r\n"},
		{"document marks", "---\nversion: 1\nmode: watch\n"},
		{"quoted", "\"version\": \"1\"\n'mode': 'watch'\n"},
		{"json", `{"version": 1, "mode": "watch", "rules": []}`},
		{"comments", "# a\nversion: 1 # b\n\n# c\nmode: watch\t# d\n# e\n"},
		{"tab after a colon", "version:\t1\nmode:\twatch\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if c := mustParse(t, tc.in); c.Mode != Watch {
				t.Errorf("mode %q", c.Mode)
			}
		})
	}
}

// Places are those that an editor shows, whatever ends the lines.
func TestPlacesAfterComments(t *testing.T) {
	text := "# a\n\n# b\nversion: 1 # c\n\n# d\nnetwork:\n  # e\n  slots: 5 # f\n# g\nmode: on\n"
	for _, in := range []string{text, strings.ReplaceAll(text, "\n", "\r\n"), "\xef\xbb\xbf" + text} {
		_, err := Parse("c.yaml", []byte(in))
		wantErrors(t, err, "c.yaml:9:10: slots 5", "c.yaml:11:7: \"on\" is no `mode`")
	}
}

func TestLineOf(t *testing.T) {
	data := []byte("a\nb\n")
	for n, want := range map[int]string{1: "a", 2: "b", 3: "", 4: "", 9: ""} {
		if got := lineOf(data, n); got != want {
			t.Errorf("line %d: %q, want %q", n, got, want)
		}
	}
}
