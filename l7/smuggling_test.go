package l7

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/config"
)

// hidden is a request that hides in what TestSmuggling sends.
const hidden = "GET /hidden HTTP/1.1\r\nHost: hidden.example\r\n\r\n"

// begun is what the upstream sees of a request for a.example that breaks off.
const begun = "only the begin of one for a.example"

// shapes are requests of which servers disagree where they end, which host they
// are for, or whether they are requests at all. passes is the request that the
// upstream is to see; empty: none.
var shapes = []struct {
	name, bytes string
	passes      string
	status      string // of the answer
	open        bool   // the connection goes on
}{
	{"plain", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nabc", "POST /a a.example abc", "200", true},
	{"length and chunks", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + hidden, "POST /a a.example abc", "200", false},
	{"chunks and length", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 100\r\n\r\n0\r\n\r\n" + hidden, "POST /a a.example ", "200", false},
	{"chunks", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + hidden, "POST /a a.example abc", "200", false},
	{"two lengths", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nContent-Length: 47\r\n\r\n" + hidden, "", "400", false},
	{"a list of lengths", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0, 47\r\n\r\n" + hidden, "", "400", false},
	{"a signed length", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: +3\r\n\r\nabc", "", "400", false},
	{"a negative length", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: -1\r\n\r\n" + hidden, "", "400", false},
	{"a length in hex", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0x3\r\n\r\nabc", "", "400", false},
	{"an empty length", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: \r\n\r\n" + hidden, "", "400", false},
	{"one length twice", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "POST /a a.example abc", "200", true},
	{"xchunked", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden, "", "501", false},
	{"xchunked with length", "POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: xchunked\r\n\r\nabc", "", "501", false},
	{"two codings", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden, "", "501", false},
	{"a list of codings", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden, "", "501", false},
	{"chunked after a tab", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding:\tchunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n" + hidden, "POST /a a.example ", "200", false},
	{"chunked after a vertical tab", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + hidden, "", "400", false},
	{"chunked in quotes", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n" + hidden, "", "501", false},
	{"chunked on a folded line", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding:\r\n chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n" + hidden, "POST /a a.example ", "200", false},
	{"space before the colon", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, "", "400", false},
	{"space before the name", "POST /a HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: a.example\r\n\r\n0\r\n\r\n" + hidden, "", "400", false},
	{"underscore", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer_Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", "POST /a a.example abc", "200", true},
	{"a folded value", "GET /a HTTP/1.1\r\nHost: a.example\r\nX-A: one\r\n two\r\n\r\n", "GET /a a.example ", "200", true},
	{"bare LF", "GET /a HTTP/1.1\nHost: a.example\n\n", "GET /a a.example ", "200", true},
	{"bare LF in chunks", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" + hidden, begun, "400", false},
	{"bare CR in a value", "GET /a HTTP/1.1\r\nHost: a.example\r\nX-A: a\rTransfer-Encoding: chunked\r\n\r\n", "", "400", false},
	{"NUL in a value", "GET /a HTTP/1.1\r\nHost: a.example\r\nX-A: a\x00b\r\n\r\n", "", "400", false},
	{"a control in a value", "GET /a HTTP/1.1\r\nHost: a.example\r\nX-A: a\x01b\r\n\r\n", "", "400", false},
	{"a control in a name", "GET /a HTTP/1.1\r\nHost: a.example\r\nX\x01A: ab\r\n\r\n", "", "400", false},
	{"no name", "GET /a HTTP/1.1\r\nHost: a.example\r\n: ab\r\n\r\n", "", "400", false},
	{"no colon", "GET /a HTTP/1.1\r\nHost: a.example\r\nab\r\n\r\n", "", "400", false},
	{"the whole URL, another host", "GET http://a.example/a HTTP/1.1\r\nHost: b.example\r\n\r\n", "GET /a a.example ", "200", true},
	{"the whole URL, an escaped host", "GET http://%EF%BD%81.example/a HTTP/1.1\r\nHost: b.example\r\n\r\n", "", "400", false},
	{"the whole URL with a user", "GET http://b.example@a.example/a HTTP/1.1\r\nHost: b.example\r\n\r\n", "GET /a a.example ", "200", true},
	{"two hosts", "GET /a HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n", "", "400", false},
	{"no host", "GET /a HTTP/1.1\r\n\r\n", "", "400", false},
	{"a path in the host", "GET /a HTTP/1.1\r\nHost: a.example/b\r\n\r\n", "", "400", false},
	{"a space in the host", "GET /a HTTP/1.1\r\nHost: a.example b\r\n\r\n", "", "400", false},
	{"a user in the host", "GET /a HTTP/1.1\r\nHost: b@a.example\r\n\r\n", "", "400", false},
	{"two ports", "GET /a HTTP/1.1\r\nHost: a.example:80:81\r\n\r\n", "", "400", false},
	{"a port of letters", "GET /a HTTP/1.1\r\nHost: a.example:http\r\n\r\n", "", "400", false},
	{"two dots at the end", "GET /a HTTP/1.1\r\nHost: a.example..\r\n\r\n", "", "400", false},
	{"a comma in the host", "GET /a HTTP/1.1\r\nHost: a.example,b.example\r\n\r\n", "", "400", false},
	{"an escape in the host", "GET /a HTTP/1.1\r\nHost: %61.example\r\n\r\n", "", "400", false},
	{"wide letters in the host", "GET /a HTTP/1.1\r\nHost: \uff41.example\r\n\r\n", "", "400", false},
	{"an address", "GET /a HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "GET /a [2001:db8::1]:80 ", "200", true},
	{"HTTP/1.0", "GET /a HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n" + hidden, "GET /a a.example ", "200", false},
	{"HTTP/1.0 in chunks", "POST /a HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc" + hidden, "POST /a a.example abc", "200", false},
	{"HTTP/1.2", "GET /a HTTP/1.2\r\nHost: a.example\r\n\r\n", "GET /a a.example ", "200", true},
	{"HTTP/9.9", "GET /a HTTP/9.9\r\nHost: a.example\r\n\r\n", "", "505", false},
	{"no version", "GET /a\r\nHost: a.example\r\n\r\n", "", "400", false},
	{"a space in the target", "GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n", "", "400", false},
	{"a tab in the line", "GET\t/a HTTP/1.1\r\nHost: a.example\r\n\r\n", "", "400", false},
	{"extensions", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n0;c\r\n\r\n" + hidden, "POST /a a.example abc", "200", false},
	{"trailers", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n3\r\nabc\r\n0\r\nX-A: b\r\nContent-Length: 9\r\nHost: b.example\r\n\r\n" + hidden, "POST /a a.example abc", "200", false},
	{"a huge chunk", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc", begun, "400", false},
	{"a negative chunk", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", begun, "400", false},
	{"a chunk without its end", "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n" + hidden, begun, "400", false},
	{"bytes after the end", "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n\x00\x01\x02\r\n\r\n", "GET /a a.example ", "200", true},
}

// Of each shape the upstream sees the one request that the gate judged, well
// formed, or none; the rule of its host is charged and no other; and where
// somebody before the gate may see other requests than the gate does, the
// connection ends.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			up := newObedientUpstream(t)
			rules := []config.Rule{ruleOf(t, "a", "client", "100/1h"), ruleOf(t, "b", "client", "100/1h"), ruleOf(t, "hidden", "client", "100/1h")}
			rules[0].Match.Hosts, rules[1].Match.Hosts, rules[2].Match.Hosts = []string{"a.example"}, []string{"b.example"}, []string{"hidden.example"}
			r := newRawRig(t, Policy{Rules: rules}, up, nil)
			back, open := r.say("127.0.0.2", s.bytes)
			if !strings.HasPrefix(back, s.status+" ") || open != s.open {
				t.Errorf("answered %q, open %v; want %s, open %v", back, open, s.status, s.open)
			}
			seen := strings.Join(requestsIn(t, up.got()), "\n")
			host := "a.example"
			if s.passes != begun {
				want(t, "the upstream saw", seen, s.passes)
				_, host, _ = strings.Cut(s.passes, "/a ")
			} else if seen != "" {
				t.Errorf("the upstream saw %q", seen)
			}
			for name, c := range r.gate.Counters() {
				want(t, "charged to "+name, c.Passed, uint64(strings.Count(host, name+".example")))
			}
		})
	}
}

// requestsIn reads what an upstream was sent: each request that is complete,
// framed in one way only, and of one host. The begin of one that was given up
// does not count, since no upstream would act on it.
func requestsIn(t testing.TB, all string) (got []string) {
	t.Helper()
	in := bufio.NewReader(strings.NewReader(all))
	for {
		head, err := in.Peek(1)
		if err != nil || len(head) == 0 {
			return got
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			t.Errorf("the upstream was sent what is no request: %v\n%q", err, all)
			return got
		}
		var body strings.Builder
		_, err = bufio.NewReader(r.Body).WriteTo(&body)
		text, _, _ := strings.Cut(all, "\r\n\r\n")
		lower := strings.ToLower(text)
		if strings.Count(lower, "\r\nhost:") != 1 || strings.Count(lower, "\r\ncontent-length:")+strings.Count(lower, "\r\ntransfer-encoding:") > 1 ||
			strings.Contains(strings.ReplaceAll(lower, "\r\n", ""), "\n") || strings.Contains(strings.ReplaceAll(lower, "\r\n", ""), "\r") {
			t.Errorf("the upstream was sent what can be read in two ways: %q", all)
		}
		for _, name := range []string{"Host", "Content-Length"} {
			if _, ok := r.Trailer[name]; ok {
				t.Errorf("the upstream was sent %s after the body", name)
			}
		}
		if err != nil {
			return got
		}
		got = append(got, r.Method+" "+r.RequestURI+" "+r.Host+" "+body.String())
	}
}

// Many field lines cost more than their bytes, and large ones their memory.
func TestTooManyFields(t *testing.T) {
	t.Parallel()
	r := newRig(t, Policy{})
	for _, c := range []struct {
		name, lines, want string
	}{
		{"few", strings.Repeat("X: y\r\n", 100), "200"},
		{"many", strings.Repeat("X: y\r\n", 300), "431"},
		{"large", "X: " + strings.Repeat("y", 2<<20) + "\r\n", "431"},
	} {
		got, _ := r.say("127.0.0.2", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+c.lines+"\r\n")
		if !strings.HasPrefix(got, c.want+" ") {
			t.Errorf("%s: %.80q, want %s", c.name, got, c.want)
		}
	}
}
