package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAllFaultsAtOnce is RC-009 and RC-031: each fault at its place, with its
// cure, all in one run and in order.
func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Parse("etc/headgate.yaml", []byte(`version: 1
mode: Watch
Rules: []
burst: 5
trusted_proxies: [10.0.0.0/8]
network:
  interfaces: eth0
  slots: 1000000
  attach-mode: xdp
allow: [192.0.2.1/24, 300.1.1.1]
http:
  listen: 8080
  max-age: 5
rules:
- name: login
  by: "ip "
  rate: 010/s
- {name: b, per: ip, rate: 0.5/s}
- {name: c, per: client, rate: 1/s, burts: 5, burst: 3, burst: 4}
- {name: d, per: "client ", rate: 1/s, burst: 0}
- {name: d, per: source, rate: 10Mb/s, match: {ports: [80], burst: 5}}
`))
	wantErrors(t, err,
		"etc/headgate.yaml:2:7: \"Watch\" is no `mode`: did you mean `watch`?",
		"etc/headgate.yaml:3:1: unknown key `Rules`: did you mean `rules`?",
		"etc/headgate.yaml:4:1: `burst` belongs in a rule",
		"etc/headgate.yaml:5:1: unknown key `trusted_proxies`: did you mean `proxies` in `http`?",
		"etc/headgate.yaml:7:15: `interfaces` is a list: write [eth0]",
		"etc/headgate.yaml:8:10: slots 1000000: …524288 (8 MiB) or 1048576 (16 MiB)",
		"etc/headgate.yaml:9:3: unknown key `attach-mode`: did you mean `attach_mode`?",
		"etc/headgate.yaml:10:9: \"192.0.2.1/24\" has host bits set: write 192.0.2.0/24",
		"etc/headgate.yaml:10:23: \"300.1.1.1\" is no address prefix",
		"etc/headgate.yaml:12:11: \"8080\" is no address: write \":8080\"",
		"etc/headgate.yaml:13:3: unknown key `max-age`: `http` has listen, ",
		"etc/headgate.yaml:16:3: rule \"login\": unknown key `by`: did you mean `per`?",
		"etc/headgate.yaml:17:9: rule \"login\": rate \"010/s\" …leading zero",
		"etc/headgate.yaml:18:18: rule \"b\": \"ip\" is no `per`: did you mean `client`?",
		"etc/headgate.yaml:18:28: rule \"b\": rate \"0.5/s\" …write 1/2s",
		"etc/headgate.yaml:19:37: rule \"c\": unknown key `burts`: did you mean `burst`?",
		"etc/headgate.yaml:19:57: rule \"c\": `burst` is there twice, first in line 19",
		"etc/headgate.yaml:20:18: rule \"d\": \"client \" has spaces around it",
		"etc/headgate.yaml:20:47: rule \"d\": burst \"0\" …the smallest is 1",
		"etc/headgate.yaml:21:3: rule \"d\": the name is used twice, first in line 20",
		"etc/headgate.yaml:21:32: rule \"d\": rate \"10Mb/s\" …write Mbit or MB",
		"etc/headgate.yaml:21:48: rule \"d\": `ports` needs a protocol",
		"etc/headgate.yaml:21:61: rule \"d\": `burst` belongs in a rule, not in a rule's `match`",
	)
}

// Faults of a file's other sections, one a case; RC-031 for each kind.
func TestFaults(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"mode: watch\n", "c.yaml:1:1: `version` is missing in the file: add `version: 1`"},
		{"version: 2\n", "c.yaml:1:10: version \"2\": this headgate reads version 1"},
		{"version:\n", "c.yaml:1:1: `version` has no value"},
		{"versoin: 1\n", "c.yaml:1:1: unknown key `versoin`: did you mean `version`?"},
		{"version: 1\nrules:\n", "c.yaml:2:1: `rules` has no value"},
		{"version: 1\nrules: {}\n", "c.yaml:2:8: `rules` is a list"},
		{"version: 1\nrules: [5]\n", "c.yaml:2:9: rule 1: a rule is a mapping, not a word"},
		{"version: 1\nhttp: on\n", "c.yaml:2:7: `http` is a mapping, not a word"},
		{"version: 1\nblock: [~]\n", "c.yaml:2:9: `block` has an empty item"},
		{"version: 1\nblock: [\"\"]\n", "c.yaml:2:9: `block` is empty"},
		{"version: 1\nblock: [[192.0.2.1]]\n", "c.yaml:2:9: `block` takes a word, not a list"},
		{"version: 1\n\"mo\\nde\": watch\n", "c.yaml:2:1: unknown key \"mo\\nde\""},

		{"version: 1\nescalate: {after: 50/10s}\n", "c.yaml:2:1: this version does not have `escalate` yet; remove it"},
		{"version: 1\ninclude: rules.d\n", "c.yaml:2:1: this version does not have `include` yet"},
		{"version: 1\nconcurrent: 5\n", "c.yaml:2:1: this version does not have `concurrent` yet"},

		{"version: 1\nnetwork: {interfaces: [eth0, eth0]}\n", "c.yaml:2:30: interface \"eth0\" is there twice"},
		{"version: 1\nnetwork: {interfaces: [a/b]}\n", "c.yaml:2:24: \"a/b\" is no interface name"},
		{"version: 1\nnetwork: {interfaces: [sixteen-letters-]}\n", "c.yaml:2:24: \"sixteen-letters-\" is no interface name"},
		{"version: 1\nnetwork: {interfaces: [\"eth[\"]}\n", "c.yaml:2:24: \"eth[\" is no pattern of interface names: write one such as eth*"},
		{"version: 1\nnetwork: {leash: 5s}\n", "c.yaml:2:18: leash \"5s\": from 1min to 365d, or off"},
		{"version: 1\nnetwork: {leash: never}\n", "c.yaml:2:18: leash: "},
		{"version: 1\nnetwork: {repair: maybe}\n", "c.yaml:2:19: \"maybe\" is no `repair`: use true or false"},
		{"version: 1\nnetwork: {attach_mode: skb}\n", "c.yaml:2:24: \"skb\" is no `attach_mode`: did you mean `generic`?"},
		{"version: 1\nnetwork: {slots: 2048}\n", "c.yaml:2:18: slots 2048: from 4096 to 134217728 (16 bytes each)"},
		{"version: 1\nnetwork: {slots: 0x1000}\n", "c.yaml:2:18: slots \"0x1000\": write a whole number"},
		{"version: 1\nnetwork: {management: {ports: [tcp/22]}}\n", "c.yaml:2:23: `sources` is missing in `network.management`"},
		{"version: 1\nnetwork: {management: {sources: [10.0.0.0/8], ports: [22]}}\n", "c.yaml:2:55: \"22\" is no port of a protocol: write tcp/22"},
		{"version: 1\nnetwork: {management: {sources: [10.0.0.0/8], ports: []}}\n", "c.yaml:2:54: `ports` is empty"},

		{"version: 1\nhttp: {listen: \":8080\"}\n", "c.yaml:2:16: the listener has no upstream"},
		{"version: 1\nhttp: {upstream: \"http://a\"}\n", "c.yaml:2:8: `upstream` without a listener"},
		{"version: 1\nhttp: {listen: \":80\", listeners: [{address: \":81\"}], upstream: \"http://a\"}\n", "c.yaml:2:8: `listen` is the short form"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"a:81\"}\n", "c.yaml:2:33: \"a:81\" is no URL"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"ftp://a\"}\n", "c.yaml:2:33: upstream with scheme \"ftp\""},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"http://u:secret@a\"}\n", "c.yaml:2:33: upstream with a user in its URL: remove it"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"http://a/b\"}\n", "c.yaml:2:33: upstream \"http://a/b\" has a path"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"http://a?b\"}\n", "c.yaml:2:33: upstream \"http://a?b\" has a query"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"http://\"}\n", "c.yaml:2:33: upstream \"http://\": \"\" is no host"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"http://a:99999\"}\n", "c.yaml:2:33: upstream \"http://a:99999\": its port"},
		{"version: 1\nhttp: {listen: \":80\", upstream: \"http://127.0.0.1:80\"}\n", "c.yaml:2:33: upstream \"http://127.0.0.1:80\" is the listener itself"},
		{"version: 1\nhttp: {listeners: [{address: \":80\"}, {address: \"127.0.0.1:80\"}], upstream: \"http://a\"}\n", "c.yaml:2:48: \"127.0.0.1:80\" is listened on by \":80\" already"},
		{"version: 1\nhttp: {listeners: [{address: \":80\", door: nginx}], upstream: \"http://a\"}\n", "c.yaml:2:43: this version does not have `door: nginx` yet"},
		{"version: 1\nhttp: {listeners: [{door: proxy}], upstream: \"http://a\"}\n", "c.yaml:2:20: `address` is missing in an item of `http.listeners`"},
		{"version: 1\nhttp: {listen: \"localhost\", upstream: \"http://a\"}\n", "c.yaml:2:16: \"localhost\" is no address: write host:port"},
		{"version: 1\nhttp: {listen: \":http\", upstream: \"http://a\"}\n", "c.yaml:2:16: \":http\" has no port"},
		{"version: 1\nhttp: {identities: {key: {file: k}}}\n", "c.yaml:2:26: `header` is missing in `http.identities.key`…c.yaml:2:33"},
		{"version: 1\nhttp: {identities: {key: {header: Host}}}\n", "c.yaml:2:35: header Host cannot carry an API key"},
		{"version: 1\nhttp: {identities: {key: {header: authorization}}}\n", "c.yaml:2:35: to read keys from Authorization write `bearer: true`"},
		{"version: 1\nhttp: {identities: {key: {header: \"X Key\"}}}\n", "c.yaml:2:35: \"X Key\" is no header name"},
		{"version: 1\nhttp: {exempt: [{path: /healthz}]}\n", "c.yaml:2:17: `from` is missing in an item of `http.exempt`"},
		{"version: 1\nhttp: {exempt: [{path: /a/**, from: [10.0.0.0/8]}]}\n", "c.yaml:2:24: path \"/a/**\": an exempt path is exact"},
		{"version: 1\nhttp: {exempt: [{path: /a, from: []}]}\n", "c.yaml:2:34: `from` is empty: nobody is exempt"},
		{"version: 1\nhttp: {user: \"a b\"}\n", "c.yaml:2:14: \"a b\" is no name of a system user"},
		{"version: 1\nhttp: {ipv6_prefix: /64}\n", "c.yaml:2:21: ipv6_prefix \"/64\": write a whole number from 48 to 128"},
		{"version: 1\nhttp: {connections_per_client: 0}\n", "c.yaml:2:32: connections_per_client \"0\": write a whole number from 1 to 1000000"},
		{"version: 1\nhttp: {answer_timeout: 100ms}\n", "c.yaml:2:24: answer_timeout \"100ms\": from 1s to 24h"},
		{"version: 1\nhttp: {connections_per_client: 1k}\n", "c.yaml:2:32: connections_per_client \"1k\": write a whole number"},
		{"version: 1\nhttp: {max_connections: 9}\n", "c.yaml:2:8: unknown key `max_connections`: did you mean `connections_per_client`?"},
		{"version: 1\nhttp: {ipv6_prefix: 47}\n", "c.yaml:2:21: ipv6_prefix \"47\""},
		{"version: 1\nhttp: {ipv6_prefix: 129}\n", "c.yaml:2:21: ipv6_prefix \"129\""},

		{"version: 1\nadmin: {socket: run/x.sock}\n", "c.yaml:2:17: socket \"run/x.sock\": write the whole path"},
		{"version: 1\nadmin: {socket: /" + strings.Repeat("x", 107) + "}\n", "c.yaml:2:17: socket path of 108 bytes: the most is 107"},
		{"version: 1\nadmin: {listen: false}\n", "c.yaml:2:17: \"false\" is no address: write `listen: off`"},
		{"version: 1\nadmin: {listen: 9317}\n", "c.yaml:2:17: \"9317\" is no address: write \":9317\""},
		{"version: 1\nadmin: {listen: \":80\"}\nhttp: {listen: \":80\", upstream: \"http://a\"}\n", "c.yaml:2:8: admin listens on \":80\", and so does the http gate"},
		{"version: 1\nstate: {dir: lib}\n", "c.yaml:2:14: dir \"lib\": write the whole path"},
		{"version: 1\nrules: [{name: a, per: key, rate: 1/s}]\n", "c.yaml:2:9: rule \"a\" counts per key, but nothing says where keys are"},
	} {
		t.Run(strings.TrimPrefix(tc.in, "version: 1\n"), func(t *testing.T) {
			c, err := Parse("c.yaml", []byte(tc.in))
			if err == nil || c != nil {
				t.Fatalf("accepted, want %s", tc.want)
			}
			if !hasParts(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("\n got: %v\nwant: %s", err, tc.want)
			}
			if n := strings.Count(err.Error(), "\n"); n > strings.Count(tc.want, "…c.yaml") {
				t.Errorf("more than one fault:\n%v", err)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "headgate.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "-c") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("folder: %v", err)
	}
	big := []byte("version: 1\n" + strings.Repeat("#\n", largestFile/2))
	if err := os.WriteFile(path, big, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("large file: %v", err)
	}
	if err := os.WriteFile(path, []byte("version: 1\nmode: watch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || c.Mode != Watch {
		t.Errorf("good file: %+v, %v", c, err)
	}
}

func TestManyErrorsAreCut(t *testing.T) {
	var b strings.Builder
	b.WriteString("version: 1\nblock:\n")
	for i := range 500 {
		fmt.Fprintf(&b, "  - host%d\n", i)
	}
	_, err := Parse("c.yaml", []byte(b.String()))
	if n := len(err.(Errors)); n != 500 {
		t.Errorf("%d errors, want 500", n)
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != shownErrors+1 || lines[shownErrors] != "and 400 more" {
		t.Errorf("%d lines, last %q", len(lines), lines[len(lines)-1])
	}
}

func TestErrorText(t *testing.T) {
	for _, tc := range []struct {
		e    Error
		want string
	}{
		{Error{"a.yaml", 3, 7, "bad"}, "a.yaml:3:7: bad"},
		{Error{"a.yaml", 0, 0, "bad"}, "a.yaml: bad"},
		{Error{"", 0, 0, "bad"}, "bad"},
	} {
		if got := tc.e.Error(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.e, got, tc.want)
		}
	}
}
