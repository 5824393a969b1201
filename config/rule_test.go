package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseRule(t *testing.T) {
	second := func(n int64) Rate { return Rate{n, time.Second, Count} }
	for _, tc := range []struct {
		in   string
		want Rule
	}{
		{"{name: s, per: source, rate: 20000/s}", Rule{
			Gate: GateNetwork, Per: []Per{PerSource}, Algorithm: TokenBucket, Rate: second(20000), Burst: 20000,
			Text: "{name: s, per: source, rate: 20000/s, burst: 20000}",
		}},
		// The default burst: the number written, at the network gate a second's worth.
		{"{name: s, per: source, rate: 10/250ms}", Rule{
			Gate: GateNetwork, Per: []Per{PerSource}, Algorithm: TokenBucket, Rate: Rate{10, 250 * time.Millisecond, Count}, Burst: 40,
			Text: "{name: s, per: source, rate: 10/250ms, burst: 40}",
		}},
		{"{name: s, per: client, rate: 10/250ms}", Rule{
			Gate: GateHTTP, Per: []Per{PerClient}, Algorithm: TokenBucket, Rate: Rate{10, 250 * time.Millisecond, Count}, Burst: 10,
			Text: "{name: s, per: client, rate: 10/250ms, burst: 10}",
		}},
		{"{name: s, per: source, rate: 90/min}", Rule{
			Gate: GateNetwork, Per: []Per{PerSource}, Algorithm: TokenBucket, Rate: Rate{90, time.Minute, Count}, Burst: 90,
			Text: "{name: s, per: source, rate: 90/min, burst: 90}",
		}},
		{"{name: s, per: source, rate: 64kbit/s}", Rule{
			Gate: GateNetwork, Per: []Per{PerSource}, Algorithm: TokenBucket, Rate: Rate{8000, time.Second, Bytes}, Burst: 64000,
			Text: "{name: s, per: source, rate: 8kB/s, burst: 64kB}",
		}},
		{"{name: dns, match: {protocol: 17, ports: [53, 8000-8010]}, per: source, rate: 2Mbit/s, burst: 256KiB, mode: watch}", Rule{
			Gate: GateNetwork, Match: Match{Protocol: "udp", Ports: []PortRange{{53, 53}, {8000, 8010}}}, Per: []Per{PerSource},
			Algorithm: TokenBucket, Rate: Rate{250000, time.Second, Bytes}, Burst: 256 << 10, Mode: Watch,
			Text: "{name: dns, match: {protocol: udp, ports: [53, 8000-8010]}, per: source, rate: 2Mbit/s, burst: 256KiB, mode: watch}",
		}},
		{"{name: cap, gate: network, per: total, rate: 5/s, burst: 1}", Rule{
			Gate: GateNetwork, Per: []Per{PerTotal}, Algorithm: TokenBucket, Rate: second(5), Burst: 5 - 4,
			Text: "{name: cap, gate: network, per: total, rate: 5/s, burst: 1}",
		}},
		{"{name: cap, match: {protocol: 200}, per: total, rate: 5/s}", Rule{
			Gate: GateNetwork, Match: Match{Protocol: "200"}, Per: []Per{PerTotal}, Algorithm: TokenBucket, Rate: second(5), Burst: 5,
			Text: "{name: cap, match: {protocol: 200}, per: total, rate: 5/s, burst: 5}",
		}},
		{"{name: all, gate: http, per: [total], limit: 101/s}", Rule{
			Gate: GateHTTP, Per: []Per{PerTotal}, Algorithm: SlidingCounter, Rate: second(101),
			Text: "{name: all, gate: http, per: total, limit: 101/s}",
		}},
		{`{"name":"login","match":{"method":"POST","path":["\/login","/u/{id}","/x/**"],"host":["A.example","*.b.example","::1"]},"per":"client","limit":"5/min"}`, Rule{
			Gate: GateHTTP, Match: Match{Methods: []string{"POST"}, Paths: []string{"/login", "/u/{id}", "/x/**"}, Hosts: []string{"a.example", "*.b.example", "::1"}},
			Per: []Per{PerClient}, Algorithm: SlidingLog, Rate: Rate{5, time.Minute, Count},
			Text: `{name: login, match: {method: POST, path: [/login, "/u/{id}", "/x/**"], host: [a.example, "*.b.example", "::1"]}, per: client, limit: 5/min}`,
		}},
		// The order of `per` is no part of the identity.
		{"{name: k, per: [key, client], rate: 5/s, anonymous: {rate: 1/s}}", Rule{
			Gate: GateHTTP, Per: []Per{PerClient, PerKey}, Algorithm: TokenBucket, Rate: second(5), Burst: 5,
			Anonymous: &Anonymous{Per: []Per{PerClient}, Rate: second(1), Burst: 1},
			Text:      "{name: k, per: [client, key], rate: 5/s, burst: 5, anonymous: {per: client, rate: 1/s, burst: 1}}",
		}},
		{"{name: k, per: key, limit: 200/s, algorithm: sliding-log, anonymous: {per: total, limit: 5/s}}", Rule{
			Gate: GateHTTP, Per: []Per{PerKey}, Algorithm: SlidingLog, Rate: second(200),
			Anonymous: &Anonymous{Per: []Per{PerTotal}, Rate: second(5)},
			Text:      "{name: k, per: key, limit: 200/s, algorithm: sliding-log, anonymous: {per: total, limit: 5/s}}",
		}},
		// One algorithm for both: the larger figure decides.
		{"{name: k, per: key, limit: 5/s, anonymous: {limit: 200/s}}", Rule{
			Gate: GateHTTP, Per: []Per{PerKey}, Algorithm: SlidingCounter, Rate: second(5),
			Anonymous: &Anonymous{Per: []Per{PerClient}, Rate: second(200)},
			Text:      "{name: k, per: key, limit: 5/s, anonymous: {per: client, limit: 200/s}}",
		}},
		{"name: block-style\nper: client\nmatch:\n  path: /a\nrate: 1/h\n", Rule{
			Gate: GateHTTP, Match: Match{Paths: []string{"/a"}}, Per: []Per{PerClient}, Algorithm: TokenBucket,
			Rate: Rate{1, time.Hour, Count}, Burst: 1,
			Text: "{name: block-style, match: {path: /a}, per: client, rate: 1/h, burst: 1}",
		}},
		{`{name: "true", per: client, rate: 1/s}`, Rule{
			Gate: GateHTTP, Per: []Per{PerClient}, Algorithm: TokenBucket, Rate: second(1), Burst: 1,
			Text: `{name: "true", per: client, rate: 1/s, burst: 1}`,
		}},
	} {
		got, err := ParseRule("rule", []byte(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		tc.want.Name = got.Name
		if tc.want.Mode == "" {
			tc.want.Mode = Enforce
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.in, diff)
		}
	}
}

func TestRuleFaults(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tc := range []struct{ in, want string }{
		{"", "r: empty: a rule is a mapping"},
		{"[1]", "r:1:1: a rule is a mapping, not a list"},
		{"{per: client, rate: 1/s}", "r:1:1: `name` is missing"},
		{"{name: A, per: client, rate: 1/s}", "r:1:8: rule \"A\": name \"A\": use only a to z"},
		{"{name: a b, per: client, rate: 1/s}", "r:1:8: rule \"a b\": name \"a b\": use only"},
		{"{name: -a, per: client, rate: 1/s}", "r:1:8: rule \"-a\": name \"-a\": start it with"},
		{"{name: " + long + ", per: client, rate: 1/s}", "r:1:8: rule \"…has 64 bytes: the most is 63"},
		{"{name: a, rate: 1/s}", "r:1:1: rule \"a\": `per` is missing"},
		{"{name: a, per: [], rate: 1/s}", "r:1:16: rule \"a\": `per` is an empty list"},
		{"{name: a, per: client}", "r:1:1: rule \"a\": `rate` is missing"},
		{"{name: a, per: Client, rate: 1/s}", "r:1:16: rule \"a\": \"Client\" is no `per`: did you mean `client`?"},
		{"{name: a, per: cleint, rate: 1/s}", "r:1:16: rule \"a\": \"cleint\" is no `per`: did you mean `client`?"},
		{"{name: a, per: [client, client], rate: 1/s}", "r:1:25: rule \"a\": `per` names client twice"},
		{"{name: a, per: [client, total], rate: 1/s}", "r:1:16: rule \"a\": `per: total` is one bucket for all"},
		{"{name: a, per: total, rate: 1/s}", "r:1:16: rule \"a\": `per: total` without match says no gate"},
		{"{name: a, per: [source, client], rate: 1/s}", "r:1:1: rule \"a\": `per: source` is for the network gate and `per: client` for the http gate"},
		{"{name: a, per: source, match: {path: /a}, rate: 1/s}", "r:1:1: rule \"a\": `per: source` is for the network gate and `match: path` for"},
		{"{name: a, gate: network, per: total, match: {path: /a}, rate: 1/s}", "r:1:17: rule \"a\": gate: network does not know `match: path`"},
		{"{name: a, gate: http, per: source, rate: 1/s}", "r:1:17: rule \"a\": gate: http does not know `per: source`"},
		{"{name: a, gate: xdp, per: source, rate: 1/s}", "r:1:17: rule \"a\": \"xdp\" is no `gate`: did you mean `network`?"},
		{"{name: a, per: client, rate: 1/s, mode: dry-run}", "r:1:41: rule \"a\": \"dry-run\" is no `mode`: did you mean `watch`?"},

		{"{name: a, per: route, rate: 1/s}", "r:1:16: rule \"a\": this version does not have `per: route` yet"},
		{"{name: a, per: \"source/24\", rate: 1/s}", "r:1:16: rule \"a\": per \"source/24\": say the bits of IPv6 too"},
		{"{name: a, per: \"source/33,56\", rate: 1/s}", "r:1:16: rule \"a\": per \"source/33,56\": the bits of IPv4 are from 1 to 32"},
		{"{name: a, per: source, rate: 10/s, unknown: 5/s}", "r:1:45: rule \"a\": unknown 5/s is less than 10/s"},
		{"{name: a, per: destination, rate: 1/s, unknown: 5/s}", "r:1:40: rule \"a\": `unknown` is about sources"},
		{"{name: a, per: source, rate: 1/s, then: {block: 60s}}", "r:1:41: rule \"a\": `after` is missing in a rule's `then`"},
		{"{name: a, per: source, rate: 1/s, then: {block: 31d, after: 1/s}}", "r:1:49: rule \"a\": block \"31d\": from 1s to 30d"},
		{"{name: a, per: source, rate: 1/s, overrides: [{from: 10.0.0.0/8, rate: 1MB/s}]}", "r:1:72: rule \"a\": rate 1MB/s counts bytes, and the rule packets"},
		{"{name: a, per: client, rate: 1/s, then: {block: 60s, after: 1/s}}", "r:1:35: rule \"a\": this version does not have `then` at the http gate yet"},
		{"{name: a, per: client, concurrent: 5}", "r:1:24: rule \"a\": this version does not have `concurrent` yet"},
		{"{name: a, per: client, limit: 1/s, algorithm: leaky-bucket}", "r:1:47: rule \"a\": this version does not have `algorithm: leaky-bucket` yet"},

		// RC-022: 0 and less are refused, at either gate, with the smallest legal value.
		{"{name: a, per: client, rate: 1/s, burst: 0}", "r:1:42: rule \"a\": burst \"0\" admits nothing: the smallest is 1"},
		{"{name: a, per: source, rate: 1/s, burst: 0}", "r:1:42: rule \"a\": burst \"0\" admits nothing: the smallest is 1"},
		{"{name: a, per: source, rate: 1/s, burst: -5}", "r:1:42: rule \"a\": burst \"-5\" admits nothing: the smallest is 1"},
		{"{name: a, per: client, rate: 0/s}", "r:1:30: rule \"a\": rate \"0/s\" admits nothing: write 1/s or more, or 1 in a longer time, up to 1/365d"},
		{"{name: a, per: client, rate: -1/s}", "r:1:30: rule \"a\": rate \"-1/s\" is no rate: it is negative"},
		{"{name: a, per: client, limit: 0/min}", "r:1:31: rule \"a\": limit \"0/min\" admits nothing: write 1/min or more, or 1 in a longer time, up to 1/365d"},
		{"{name: a, per: source, rate: 1MB/s, burst: 0}", "r:1:44: rule \"a\": burst \"0\" admits no full frame: the smallest is 1518B"},
		{"{name: a, per: source, rate: 1MB/s, burst: -1kB}", "r:1:44: rule \"a\": burst \"-1kB\" admits no full frame"},
		{"{name: a, per: source, rate: 1MB/s, burst: 1517B}", "r:1:44: rule \"a\": burst \"1517B\" admits no full frame"},
		{"{name: a, per: source, rate: 1MB/s, burst: 5000}", "r:1:44: rule \"a\": burst \"5000\" …write 5000B"},
		{"{name: a, per: client, rate: 1/s, burst: 5/s}", "r:1:42: rule \"a\": burst \"5/s\" is no count"},
		{"{name: a, per: client, rate: 1/s, burst: 1.5}", "r:1:42: rule \"a\": burst \"1.5\" is no count"},
		{"{name: a, per: client, rate: 1/s, burst: 05}", "r:1:42: rule \"a\": burst \"05\" is no count: leading zero"},
		{"{name: a, per: client, rate: 1/day, burst: 366}", "r:1:44: rule \"a\": burst 366 takes more than a year to fill at 1/day"},
		{"{name: a, per: client, rate: 1/s, burst: 9223372036854775807}", "r:1:42: rule \"a\": burst 9223372036854775807 takes more than a year"},
		{"{name: a, per: client, rate: 1/s, burst: 9223372036854775808}", "r:1:42: rule \"a\": burst \"9223372036854775808\" is no count: the number is too large"},
		// RC-055
		{"{name: a, per: client, rate: 1000000000/s}", "r:1:30: rule \"a\": rate \"1000000000/s\" is too fast"},
		{"{name: a, per: client, rate: 1000000001/s, burst: 10}", "r:1:30: rule \"a\": rate \"1000000001/s\" is too fast"},

		{"{name: a, per: client, rate: 1/s, limit: 1/s}", "r:1:35: rule \"a\": `rate` and `limit` are two ways"},
		{"{name: a, per: source, limit: 1/s}", "r:1:24: rule \"a\": `limit` is for the http gate"},
		{"{name: a, per: client, limit: 5/min, burst: 5}", "r:1:38: rule \"a\": a limit has no burst"},
		{"{name: a, per: client, limit: 5MB/s}", "r:1:31: rule \"a\": limit \"5MB/s\" counts bytes"},
		{"{name: a, per: client, rate: 5MB/s}", "r:1:30: rule \"a\": rate \"5MB/s\" counts bytes"},
		{"{name: a, per: client, limit: 5/s, algorithm: token-bucket}", "r:1:47: rule \"a\": a token-bucket has a rate"},
		{"{name: a, per: client, rate: 5/s, algorithm: sliding-log}", "r:1:46: rule \"a\": a sliding-log has a limit"},
		{"{name: a, per: client, rate: 5/s, algorithm: token_bucket}", "r:1:46: rule \"a\": \"token_bucket\" is no `algorithm`: did you mean `token-bucket`?"},
		{"{name: a, per: client, limit: 10001/s, algorithm: sliding-log}", "r:1:31: rule \"a\": limit 10001/s is too large for a sliding-log"},
		{"{name: a, per: client, limit: 4294967296/day}", "r:1:31: rule \"a\": limit 4294967296/day is too large for a sliding-counter"},

		{"{name: a, per: client, rate: 1/s, anonymous: {rate: 1/s}}", "r:1:35: rule \"a\": `anonymous` is for rules per key"},
		{"{name: a, per: key, rate: 1/s, anonymous: {}}", "r:1:43: rule \"a\": `rate` is missing in a rule's `anonymous`"},
		{"{name: a, per: key, rate: 1/s, anonymous: {limit: 1/s}}", "r:1:44: rule \"a\": the rule has a rate: `anonymous` needs `rate` too"},
		{"{name: a, per: key, limit: 1/s, anonymous: {rate: 1/s}}", "r:1:45: rule \"a\": the rule has a limit: `anonymous` needs `limit` too"},
		{"{name: a, per: key, rate: 1/s, anonymous: {per: key, rate: 1/s}}", "r:1:49: rule \"a\": `anonymous` counts requests without a key"},
		{"{name: a, per: key, rate: 1/s, anonymous: {rate: 1/s, burst: 0}}", "r:1:62: rule \"a\": burst \"0\" admits nothing"},
		{"{name: a, per: key, limit: 1/s, algorithm: sliding-log, anonymous: {limit: 10001/s}}", "r:1:76: rule \"a\": limit 10001/s is too large"},
	} {
		r, err := ParseRule("r", []byte(tc.in))
		if err == nil {
			t.Errorf("%s: accepted as %s", tc.in, r.Text)
			continue
		}
		if !hasParts(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got: %v\nwant: %s", tc.in, err, tc.want)
		}
	}
}

func TestEffective(t *testing.T) {
	r := mustRule(t, "{name: a, per: client, rate: 1/s}")
	if got := Effective(Enforce, r); got.Mode != Enforce || got.Text != r.Text {
		t.Errorf("enforce: %+v", got)
	}
	got := Effective(Watch, r)
	if got.Mode != Watch || got.Text != "{name: a, per: client, rate: 1/s, burst: 1, mode: watch}" {
		t.Errorf("watch: %+v", got)
	}
	c := mustParse(t, "version: 1\nmode: watch\nrules: [{name: a, per: client, rate: 1/s}]\n")
	if diff := cmp.Diff(got, c.Rules[0]); diff != "" {
		t.Errorf("mode of the file (-want +got):\n%s", diff)
	}
}
