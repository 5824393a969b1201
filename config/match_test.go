package config

import (
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	for _, p := range []string{
		"/", "/**", "/a", "/a/b.html", "/a/**", "/u/{id}", "/u/{id}/{name_2}/**", "/~x/-_.!$&'()+,;=:@",
		"/a b", "/a%2Fb", "/100%25", "/café", `/a\b"c`, "/...", "/a..b", "/.well-known/x",
	} {
		if fault := checkPath(p); fault != "" {
			t.Errorf("%s refused: %s", p, fault)
		}
	}
	for _, tc := range []struct{ in, want string }{
		{"a", "start it with `/`"},
		{"**", "start it with `/`"},
		{"https://a.example/b", "host under `host`"},
		{"/a?b=c", "remove `?`"},
		{"/a#b", "remove `#`"},
		{"//a", "double slash"},
		{"/a//b", "double slash"},
		{"/a/", "/a matches with and without it, and /a/** is"},
		{"/.", "`.` segment"},
		{"/a/../b", "`..` segment"},
		{"/a/**/b", "stands alone at the end"},
		{"/a**", "stands alone at the end"},
		{"/a/*", "write `{name}`"},
		{"/a/*.png", "write `{name}`"},
		{"/u/x{id}", "whole segment"},
		{"/u/{id", "whole segment"},
		{"/u/{}", "such as {id}"},
		{"/u/{Id}", "such as {id}"},
		{"/u/{id}/{id}", "twice"},
		{"/%6Cogin", "the character itself"},
		{"/a%20b", "the character itself"},
		{"/a%2fb", "the character itself"},
		{"/a%2", "the character itself"},
		{"/a%", "the character itself"},
		{"/%2F%2F%41", "the character itself"},
		{"/a\x00b", "control character"},
		{"/" + strings.Repeat("a", 1024), "the most is 1024"},
	} {
		if fault := checkPath(tc.in); !strings.Contains(fault, tc.want) {
			t.Errorf("%.60s: %q, want %q in it", tc.in, fault, tc.want)
		}
	}
}

func TestCheckHost(t *testing.T) {
	for _, h := range []string{"example.com", "*.example.com", "localhost", "xn--caf-dma.example", "a_b.example", "192.0.2.1", "2001:db8::1", "1.example"} {
		if fault := checkHost(h); fault != "" {
			t.Errorf("%s refused: %s", h, fault)
		}
	}
	for _, tc := range []struct{ in, want string }{
		{"https://example.com", "without scheme"},
		{"example.com/a", "under `path`"},
		{"example.com:443", `write "example.com"`},
		{"[2001:db8::1]", "without brackets"},
		{"example.com.", "remove the dot"},
		{"*", "one `*.` at the start"},
		{"a.*.example", "one `*.` at the start"},
		{"*.*.example", "one `*.` at the start"},
		{"café.example", "xn--"},
		{"a..b", "no host name"},
		{"-a.example", "no host name"},
		{"a b", "no host name"},
		{"*.", "remove the dot"},
		{strings.Repeat("a", 64) + ".example", "no host name"},
		{strings.Repeat("a.", 127) + "example", "no host name"},
	} {
		if fault := checkHost(tc.in); !strings.Contains(fault, tc.want) {
			t.Errorf("%.60s: %q, want %q in it", tc.in, fault, tc.want)
		}
	}
}

func TestMatchFaults(t *testing.T) {
	for _, tc := range []struct{ match, want string }{
		{"{ports: [80]}", "r:1:24: rule \"a\": `ports` needs a protocol: add `protocol: tcp` or `protocol: udp`"},
		{"{protocol: icmp, ports: [80]}", "r:1:40: rule \"a\": `ports` are of tcp or udp, not of icmp"},
		{"{protocol: tpc}", "r:1:34: rule \"a\": \"tpc\" is no `protocol`: did you mean `tcp`?"},
		{"{protocol: TCP}", "r:1:34: rule \"a\": \"TCP\" is no `protocol`: did you mean `tcp`?"},
		{"{protocol: 256}", "r:1:34: rule \"a\": \"256\" is no `protocol`…number from 0 to 255"},
		{"{protocol: 06}", "r:1:34: rule \"a\": \"06\" is no `protocol`"},
		{"{protocol: tcp, ports: []}", "r:1:46: rule \"a\": `ports` is an empty list"},
		{"{protocol: tcp, ports: [0]}", "r:1:47: rule \"a\": \"0\" is no port"},
		{"{protocol: tcp, ports: [65536]}", "r:1:47: rule \"a\": \"65536\" is no port"},
		{"{protocol: tcp, ports: [080]}", "r:1:47: rule \"a\": \"080\" is no port"},
		{"{protocol: tcp, ports: [http]}", "r:1:47: rule \"a\": \"http\" is no port"},
		{"{protocol: tcp, ports: [90-80]}", "r:1:47: rule \"a\": \"90-80\" runs backwards: write 80-90"},
		{"{protocol: tcp, ports: [80-]}", "r:1:47: rule \"a\": \"80-\" is no port"},
		{"{protocol: tcp, ports: [\"80:90\"]}", "r:1:47: rule \"a\": \"80:90\" is no port"},
		{"{method: post}", "r:1:32: rule \"a\": method \"post\": did you mean POST?"},
		{"{method: PSOT}", "r:1:32: rule \"a\": unknown method \"PSOT\": did you mean POST?"},
		{"{method: A B}", "r:1:32: rule \"a\": \"A B\" is no method"},
		{"{method: [GET, GET]}", "r:1:38: rule \"a\": \"GET\" is there twice"},
		{"{host: [a.example, A.EXAMPLE]}", "r:1:42: rule \"a\": \"a.example\" is there twice"},
		{"{port: 80}", "r:1:24: rule \"a\": unknown key `port`: did you mean `ports`?"},
		{"{from: Nobody}", "r:1:30: rule \"a\": \"Nobody\" is no address prefix"},
		{"{from: [office, office]}", "r:1:39: rule \"a\": `from` names list office twice"},
		{"{protocol: tcp, flags: \"syn,ack\"}", "r:1:46: rule \"a\": flags \"syn,ack\": write names joined by `+`"},
		{"{protocol: tcp, flags: syn+!syn}", "r:1:46: rule \"a\": flags \"syn+!syn\" names syn twice"},
		{"{protocol: tcp, flags: syn+}", "r:1:46: rule \"a\": \"\" is no flag"},
		{"{protocol: icmp, icmp_types: ping}", "r:1:52: rule \"a\": \"ping\" is no icmp type: did you mean `echo-request`?"},
		{"{protocol: icmp, icmp_types: too-big}", "r:1:52: rule \"a\": \"too-big\" is no icmp type: write a number from 0 to 255, or echo-reply"},
		{"{protocol: icmpv6, icmp_types: [echo-request, 128]}", "r:1:69: rule \"a\": icmpv6 type echo-request is there twice"},
		{"{vlan: [10, 10]}", "r:1:35: rule \"a\": vlan 10 is there twice"},
		{"{interfaces: a/b}", "r:1:36: rule \"a\": \"a/b\" is no interface name"},
		{"{from: 10.0.0.1/8}", "r:1:30: rule \"a\": …10.0.0.0/8"},
		{"{protocol: tcp, flags: sny}", "r:1:46: rule \"a\": \"sny\" is no flag: did you mean `syn`?"},
		{"{flags: syn}", "r:1:24: rule \"a\": `flags` needs a protocol: add `protocol: tcp`"},
		{"{protocol: udp, flags: syn}", "r:1:39: rule \"a\": `flags` are of tcp, not of udp"},
		{"{source_ports: [53]}", "r:1:24: rule \"a\": `source_ports` needs a protocol"},
		{"{protocol: tcp, icmp_types: [8]}", "r:1:39: rule \"a\": `icmp_types` are of icmp or icmpv6, not of tcp"},
		{"{vlan: 4095}", "r:1:30: rule \"a\": \"4095\" is no vlan"},
		{"{header: {X-A: b}}", "r:1:24: rule \"a\": unknown key `header`: did you mean `headers`?"},
		{"{headers: X-A}", "r:1:33: rule \"a\": `headers` is a mapping, not a word: write `Name: value`"},
		{"{headers: {}}", "r:1:33: rule \"a\": `headers` is empty"},
		{"{headers: {X-A: []}}", "r:1:39: rule \"a\": header X-A has an empty list"},
		{"{headers: {X-A: [a, a]}}", "r:1:43: rule \"a\": \"a\" is there twice"},
		{"{headers: {X-A: a*b}}", "r:1:39: rule \"a\": header X-A: \"a*b\" has a * in its middle"},
		{"{headers: {X A: a}}", "r:1:34: rule \"a\": \"X A\" is no header name"},
		{"{headers: {X-A: a, x-a: b}}", "r:1:42: rule \"a\": header X-A is there twice"},
		{"{headers: {host: a}}", "r:1:34: rule \"a\": header Host: write it under `host`"},
		{"{headers: {x-forwarded-for: a}}", "r:1:34: rule \"a\": header X-Forwarded-For names addresses"},
		{"{method: GET, identity: paid}", "r:1:47: rule \"a\": \"paid\" is no `identity`: use none, claimed, verified or user"},
		{"{method: GET, identity: [user, user]}", "r:1:54: rule \"a\": \"user\" is there twice"},
		{"{method: GET, plan: []}", "r:1:43: rule \"a\": `plan` is an empty list"},
		{"POST", "r:1:23: rule \"a\": a rule's `match` is a mapping, not a word"},
	} {
		per := "source"
		if strings.Contains(tc.match, "method") || strings.Contains(tc.match, "headers") || strings.Contains(tc.match, "host") {
			per = "client"
		}
		_, err := ParseRule("r", []byte("{name: a,     match:  "+tc.match+", per: "+per+", rate: 1/s}"))
		if err == nil || !hasParts(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got: %v\nwant: %s", tc.match, err, tc.want)
		}
	}
}

func TestUnusualMethods(t *testing.T) {
	r := mustRule(t, "{name: a, match: {method: [PROPFIND, BAN, M-SEARCH]}, per: client, rate: 1/s}")
	if got := strings.Join(r.Match.Methods, " "); got != "PROPFIND BAN M-SEARCH" {
		t.Errorf("methods %s", got)
	}
}

func TestProtocolNumber(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want uint8
		ok   bool
	}{{"tcp", 6, true}, {"icmpv6", 58, true}, {"0", 0, true}, {"255", 255, true}, {"256", 0, false}, {"", 0, false}, {"tpc", 0, false}} {
		got, ok := ProtocolNumber(tc.in)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("ProtocolNumber(%q) = %d, %v", tc.in, got, ok)
		}
	}
}
