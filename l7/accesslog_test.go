package l7

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/logbuffer"
)

// logged starts a gate that logs, and returns what reads the whole log once it
// has so many lines.
func logged(t *testing.T, c config.AccessLog, rules ...config.Rule) (*rig, func(lines int) []string) {
	t.Helper()
	out := new(logbuffer.Buffer)
	r := newTunedRig(t, Policy{HTTP: config.HTTP{AccessLog: &c}, Rules: rules}, "127.0.0.1:0", nil, func(g *Gate) { g.LogTo(out) })
	return r, func(n int) []string {
		await.For(t, fmt.Sprint(n, " lines"), func() bool { return strings.Count(out.String(), "\n") >= n })
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
}

// A line of JSON says who asked for what, and what became of it.
func TestAccessLogJSON(t *testing.T) {
	t.Parallel()
	r, lines := logged(t, config.AccessLog{Format: config.JSON, Passed: true, Refused: 10}, ruleOf(t, "all", "client", "limit 1/1h"))
	c := r.client("127.0.0.1")
	c.do("GET", "/a%20b?api_key=secret", "User-Agent: \"x\"\ty", "Referer: http://a.example/")
	refused := c.do("POST", "/b")
	var got [2]map[string]any
	for i, line := range lines(2) {
		if err := json.Unmarshal([]byte(line), &got[i]); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	for i, w := range []map[string]any{
		{"client": "127.0.0.1", "peer": "127.0.0.1", "method": "GET", "host": "app.example", "path": "/a%20b", "protocol": "HTTP/1.1",
			"status": 200.0, "sent": 2.0, "verdict": "passed", "user_agent": "\"x\"\ty", "referer": "http://a.example/"},
		{"method": "POST", "path": "/b", "status": 429.0, "verdict": "refused", "rule": "all", "request_id": refused.header.Get("Request-Id"), "sent": float64(len(refused.body))},
	} {
		for name, v := range w {
			if got[i][name] != v {
				t.Errorf("line %d: %s is %v, want %v", i+1, name, got[i][name], v)
			}
		}
	}
	if _, err := time.Parse(time.RFC3339Nano, got[0]["time"].(string)); err != nil {
		t.Error(err)
	}
	if _, ok := got[0]["upstream"]; !ok {
		t.Errorf("no upstream: %v", got[0])
	}
	if text := strings.Join(lines(2), ""); strings.Contains(text, "secret") {
		t.Errorf("what the query holds is in the log: %s", text)
	}
}

// A line of the combined format is one line with its quotes in order, whatever
// the request holds.
func TestAccessLogCombined(t *testing.T) {
	t.Parallel()
	r, lines := logged(t, config.AccessLog{Format: config.Combined, Passed: true, Refused: 10}, ruleOf(t, "all", "client", "limit 1/1h"))
	c := r.client("127.0.0.1")
	c.do("GET", "/\xff\"x", "User-Agent: a\"b\\c\td\xe4", "Referer: \x80")
	c.do("GET", "/")
	form := regexp.MustCompile(`^127\.0\.0\.1 - - \[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] "([^"]*)" (\d{3}) (\d+) "([^"]*)" "([^"]*)" "([^"]*)" "([^"]*)"$`)
	want := [][]string{
		{`GET /\xFF\x22x HTTP/1.1`, "200", "2", `\x80`, `a\x22b\x5Cc\x09d\xE4`, "-", "-"},
		{"GET / HTTP/1.1", "429", "", "-", "-", "all", ""},
	}
	for i, line := range lines(2) {
		m := form.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("not combined: %s", line)
		}
		for j, w := range want[i] {
			if w != "" && m[j+1] != w {
				t.Errorf("field %d: %s, want %s", j, m[j+1], w)
			}
		}
	}
}

// RC-099: a flood of refusals writes so many lines a second and rule, and says
// how many it left out.
func TestAccessLogSamples(t *testing.T) {
	t.Parallel()
	out := new(logbuffer.Buffer)
	var wall atomic.Int64 // s
	r := newTunedRig(t, Policy{
		HTTP:  config.HTTP{AccessLog: &config.AccessLog{Format: config.JSON, Refused: 3}},
		Rules: []config.Rule{ruleOf(t, "all", "client", "limit 1/1h")},
	}, "127.0.0.1:0", nil, func(g *Gate) {
		g.Wall = func() time.Time { return time.Unix(wall.Load(), 0) }
		g.LogTo(out)
	})
	c := r.client("127.0.0.1")
	for range 21 {
		c.get()
	}
	await.For(t, "3 lines", func() bool { return strings.Count(out.String(), "\n") == 3 })
	wall.Add(1)
	c.get()
	await.For(t, "4 lines", func() bool { return strings.Count(out.String(), "\n") == 4 })
	if text := out.String(); !strings.Contains(text, `"skipped":17`) || strings.Contains(text, `"passed"`) {
		t.Errorf("got %s", text)
	}
}

// failing is a disk that is full.
type failing struct{}

func (failing) Write(p []byte) (int, error) { return 0, errors.New("no space left on device") }

// A full disk costs lines, which are counted, and no request.
func TestAccessLogFullDisk(t *testing.T) {
	t.Parallel()
	r := newTunedRig(t, Policy{HTTP: config.HTTP{AccessLog: &config.AccessLog{Format: config.JSON, Passed: true}}}, "127.0.0.1:0", nil,
		func(g *Gate) { g.LogTo(failing{}) })
	c := r.client("127.0.0.1")
	for range 5 {
		want(t, "status", c.get().status, 200)
	}
	await.For(t, "lost lines", func() bool { return r.gate.LostLines() == 5 })
}

// stuck is a disk that does not answer until it is let go.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) { <-s; return len(p), nil }

// A slow disk holds no request up.
func TestAccessLogSlowDisk(t *testing.T) {
	t.Parallel()
	disk := make(stuck)
	r := newTunedRig(t, Policy{HTTP: config.HTTP{AccessLog: &config.AccessLog{Format: config.JSON, Passed: true}}}, "127.0.0.1:0", nil,
		func(g *Gate) { g.LogTo(disk) })
	t.Cleanup(func() { close(disk) })
	var all bytes.Buffer
	for range logQueue + 200 {
		all.WriteString("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	c := r.client("127.0.0.1")
	go io.Copy(c.conn, &all)
	for range logQueue + 200 {
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
	}
	if r.gate.LostLines() == 0 {
		t.Error("the queue has no end")
	}
}

// A gate that serves before it is told where to write keeps its lines for then,
// as one does that takes the place of another that was killed.
func TestAccessLogWaitsForItsFile(t *testing.T) {
	t.Parallel()
	out := new(logbuffer.Buffer)
	r := newRig(t, Policy{HTTP: config.HTTP{AccessLog: &config.AccessLog{Format: config.JSON, Passed: true}}})
	want(t, "status", r.client("127.0.0.1").do("GET", "/early").status, 200)
	r.gate.LogTo(out)
	await.For(t, "the line of before", func() bool { return strings.Contains(out.String(), `"path":"/early"`) })
	want(t, "lines lost", r.gate.LostLines(), 0)
}

// What ends while the gate drains is written before it is gone, and what no rule
// could hold is told apart from what passed.
func TestAccessLogDrains(t *testing.T) {
	t.Parallel()
	out := new(logbuffer.Buffer)
	arrived, release := make(chan struct{}), make(chan struct{})
	r := newTunedRig(t, Policy{HTTP: config.HTTP{AccessLog: &config.AccessLog{Format: config.JSON, Passed: true, Refused: 10}}}, "127.0.0.1:0",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { close(arrived); <-release }), func(g *Gate) { g.LogTo(out) })
	want(t, "malformed", r.client("127.0.0.1").do("GET", "/#a").status, 400)
	c := r.client("127.0.0.1")
	io.WriteString(c.conn, "GET /last HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	gone := make(chan error)
	go func() { gone <- r.gate.Shutdown(context.Background()) }()
	close(release)
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, `"path":"/last"`) || !strings.Contains(text, `"status":400,"sent":`) || strings.Count(text, `"verdict":"invalid"`) != 1 {
		t.Errorf("got %s", text)
	}
}
