package l7

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/headgate/headgate/config"
)

// An answer whose length is known is not held back while its upstream is slow:
// its header comes before its body, and each part before the next is there.
func TestSlowAnswerOfKnownLength(t *testing.T) {
	t.Parallel()
	parts := []string{"", "one", "two", "three"}
	step := make(chan string)
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len("onetwothree")))
		for part := range step {
			io.WriteString(w, part)
			http.NewResponseController(w).Flush()
		}
	})
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "all", "client", "5/1m")}}, "127.0.0.1:0", upstream)
	c := r.client("127.0.0.2")
	io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	var resp *http.Response
	for i, part := range parts {
		step <- part
		if i == 0 {
			var err error
			if resp, err = http.ReadResponse(c.in, nil); err != nil {
				t.Fatal(err)
			}
			want(t, "limits", unnamed(resp.Header), `"all";r=4;t=48`)
			continue
		}
		got := make([]byte, len(part))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != part {
			t.Fatalf("%q %v, want %q", got, err, part)
		}
	}
	close(step)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Fatalf("%q %v", rest, err)
	}
}
