package l7

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/headgate/headgate/config"
)

func TestWhereLimitsAreLeftOff(t *testing.T) {
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Cache-Control", "Expires", "CDN-Cache-Control"} {
			if value := r.Header.Get("Want-" + name); value != "" {
				w.Header().Set(name, value)
			}
		}
		status, _ := strconv.Atoi(r.Header.Get("Want-Status"))
		w.WriteHeader(max(status, 200))
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "1000/1s")}}, "127.0.0.1:0", upstream)
	c := r.client("127.0.0.2")
	cases := []struct {
		header string
		shown  bool
	}{
		{"Want-Status: 200", true}, {"Want-Status: 404", true}, {"Want-Status: 503", true},
		{"Want-Status: 301", false}, {"Want-Status: 304", false},
		{"Want-Cache-Control: private, max-age=60", true}, {"Want-Cache-Control: no-store", true},
		{"Want-Cache-Control: no-transform", true}, {"Want-Cache-Control: no-store, no-cache, must-revalidate", true},
		{"Want-Cache-Control: Public", false}, {"Want-Cache-Control: max-age=0, S-MaxAge=60", false},
		{"Want-Cache-Control: max-age=60", false}, {"Want-Cache-Control: No-Cache", false},
		{"Want-Cache-Control: private, public", false},
		{"Want-Expires: Thu, 01 Jan 2032 00:00:00 GMT", false}, {"Want-CDN-Cache-Control: max-age=60", false},
		{"Want-Expires: Thu, 01 Jan 2032 00:00:00 GMT\r\nWant-Cache-Control: private", true},
	}
	for _, k := range cases {
		got := c.get(k.header)
		want(t, k.header, got.header.Get("RateLimit") != "", k.shown)
		want(t, k.header, got.header.Get("RateLimit-Policy") != "", k.shown)
	}
	if answers := r.gate.Answers(); answers[200] != 13 || answers[503] != 1 || answers[304] != 1 {
		t.Errorf("answers %v", answers)
	}
}
