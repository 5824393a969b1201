package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestUpstreams(t *testing.T) {
	c := mustParse(t, `version: 1
http:
  listeners:
    - {address: ":1"}
    - {address: ":2", upstream: "h2c://b:1/"}
    - {address: ":3", upstreams: [{url: "https://C"}]}
  upstreams:
    - {match: {host: [A.example, "*.b.example"], path: /v1/**}, url: ["http://a:1", "http://a:2"], balance: least-requests, check: {path: "/up?x=1", interval: 1m}}
    - {url: "http://a:3", check: {path: /}}
`)
	shared := []Upstream{
		{
			Hosts: []string{"a.example", "*.b.example"}, Paths: []string{"/v1/**"}, URLs: []string{"http://a:1", "http://a:2"},
			Balance: LeastRequests, Check: &HealthCheck{"/up?x=1", time.Minute},
		},
		{URLs: []string{"http://a:3"}, Balance: RoundRobin, Check: &HealthCheck{"/", 5 * time.Second}},
	}
	want := []Listener{
		{Address: ":1", Door: "proxy", AnswerTimeout: time.Minute, Upstreams: shared},
		{Address: ":2", Door: "proxy", AnswerTimeout: time.Minute, Upstream: "h2c://b:1"},
		{Address: ":3", Door: "proxy", AnswerTimeout: time.Minute, Upstreams: []Upstream{{URLs: []string{"https://c"}, Balance: RoundRobin}}},
	}
	if diff := cmp.Diff(want, c.HTTP.Listeners); diff != "" {
		t.Error(diff)
	}
}

func TestUpstreamFaults(t *testing.T) {
	for in, want := range map[string]string{
		`upstreams: []`:                                                       "`upstreams` has 0 items: from 1 to 1000",
		`upstreams: [{match: {path: /a}}]`:                                    "`url` is missing in an item of `upstreams`",
		`upstreams: [{url: "ftp://a"}]`:                                       `upstream with scheme "ftp": use http, https or h2c`,
		`upstreams: [{url: []}]`:                                              "`url` is an empty list",
		`upstreams: [{url: ["http://a", "https://a"]}]`:                       "differ in their scheme",
		`upstreams: [{url: ["http://a", "http://A/"]}]`:                       "is there twice",
		`upstreams: [{url: "http://a", balance: random}]`:                     "is no `balance`: use",
		`upstreams: [{url: "http://a", balance: least_requests}]`:             "did you mean `least-requests`?",
		`upstreams: [{url: "http://a", check: {interval: 5s}}]`:               "`path` is missing",
		`upstreams: [{url: "http://a", check: {path: up}}]`:                   `path "up": write what is asked for`,
		`upstreams: [{url: "http://a", check: {path: /, interval: 10ms}}]`:    `interval "10ms": from 1s to 1h`,
		`upstreams: [{url: "http://a", match: {method: GET}}]`:                "`method` belongs in a rule's `match`, not in an upstream's `match`",
		`upstreams: [{url: "http://a", match: {path: "a"}}]`:                  "start it with `/`",
		`upstreams: [{url: "http://a"}, {url: "http://b", match: {path: /}}]`: "takes every request",
		`upstream: "http://a", upstreams: [{url: "http://b"}]`:                "short form of `upstreams`",
		`upstreams: [{url: "http://127.0.0.1:1"}]`:                            "is the listener itself",
	} {
		_, err := Parse("c.yaml", []byte("version: 1\nhttp: {listen: \":1\", "+in+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\n got: %v\nwant: %s", in, err, want)
		}
	}
	if _, err := Parse("c.yaml", []byte("version: 1\nhttp: {upstreams: [{url: \"http://a\"}]}\n")); err == nil || !strings.Contains(err.Error(), "`upstreams` without a listener") {
		t.Errorf("without a listener: %v", err)
	}
}
