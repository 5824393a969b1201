package l7

import (
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate/headgate/config"
)

// RC-052 in every form that a target comes in: origin-form, absolute-form and
// the :path of HTTP/2. One client gets 3 in all.
func TestSpellingsOverEveryProtocol(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{written(t, `{name: login, match: {path: /api/login}, per: client, limit: 3/h}`)}})
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	over2 := func(target string) int {
		base := "http://" + r.addr
		// The transport sends an opaque target as it is, without its authority.
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: r.addr, Opaque: base + target}, Header: http.Header{}}
		resp, err := h2.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		if resp.ProtoMajor != 2 {
			t.Fatalf("%s went over %s", target, resp.Proto)
		}
		return resp.StatusCode
	}
	c := r.client("127.0.0.1")
	passed := 0
	for _, target := range []string{
		"/api/login", "/api/login/", "//api//login", "/api/./login", "/api/x/../login", "/api/%6Cogin", "/api/%6cogin",
		"/api/login?x=1", "/api%2Flogin", "/api%5clogin", "/api/login;v=1", "/api/%256Cogin", "/api%c0%aflogin",
		"/api/%e0%80%aelogin/..%2flogin", "/x/%c0%ae%c0%ae/api/login", "/%C1%A1pi/login", "/api/login/%2e", "/api/login%2f",
	} {
		for _, status := range []int{
			c.do("GET", target).status, c.do("GET", "http://app.example"+target).status, over2(target),
		} {
			switch status {
			case 200:
				passed++
			case 429:
			default:
				t.Errorf("%s answered %d", target, status)
			}
		}
	}
	want(t, "passed in all spellings together", passed, 3)
	want(t, "another path over HTTP/2", over2("/api/logins"), 200)
}
