package l7

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/config"
)

// takes is an upstream that reads bodies and tells how much came.
func takes() (http.Handler, *atomic.Int64) {
	n := new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.Copy(io.Discard, r.Body)
		n.Add(got)
		fmt.Fprint(w, got)
	}), n
}

func curl(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	cmd := exec.Command("curl", append([]string{"-sS", "--max-time", "20", "-w", " %{http_code}"}, args...)...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, out)
	}
	return string(out)
}

// A client that waits before it sends a body is told to go on when it is
// admitted, and is refused before it sends anything when it is not.
func TestExpect(t *testing.T) {
	t.Parallel()
	upstream, came := takes()
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "up", "client", "limit 1/1m")}}, "127.0.0.1:0", upstream)
	body := strings.Repeat("x", 3<<20)
	// curl waits a minute for the word to go on: without it this would time out.
	args := []string{"-H", "Expect: 100-continue", "--expect100-timeout", "60", "--data-binary", "@-", "http://" + r.addr + "/up"}
	if got := curl(t, strings.NewReader(body), args...); got != fmt.Sprint(len(body), " 200") {
		t.Errorf("admitted: %s", got)
	}
	if got := curl(t, strings.NewReader(body), append([]string{"-o", "/dev/null"}, args...)...); got != " 429" {
		t.Errorf("refused: %s", got)
	}
	want(t, "bytes at the upstream", came.Load(), int64(len(body)))
}

// A refused upload is answered before it has come in, and the answer reaches a
// client that sends it all first.
func TestLargeUploadRefused(t *testing.T) {
	t.Parallel()
	upstream, came := takes()
	r := newRigOn(t, Policy{Rules: []config.Rule{ruleOf(t, "up", "client", "limit 1/1m")}}, "127.0.0.1:0", upstream)
	want(t, "the first", r.client("127.0.0.1").do("GET", "/").status, 200)
	for _, size := range []int{100 << 10, 100 << 20} {
		body := io.LimitReader(zeros{}, int64(size))
		got := curl(t, body, "-H", "Expect:", "-H", "Content-Type: application/octet-stream", "-X", "POST",
			"-H", fmt.Sprint("Content-Length: ", size), "-T", "-", "-o", "/dev/null", "http://"+r.addr+"/up")
		if got != " 429" {
			t.Errorf("%d bytes: %s", size, got)
		}
	}
	want(t, "bytes at the upstream", came.Load(), 0)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
