package l7

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/config"
)

const (
	logQueue = 4096     // lines that wait to be written
	logBatch = 64 << 10 // bytes that are written at once
)

// accessLog writes lines in the background: a disk that is slow or full holds
// no request up, and costs lines instead, which are counted.
type accessLog struct {
	queue   chan []byte
	to      atomic.Pointer[io.Writer]
	dropped atomic.Uint64 // lines that found the queue full or were not written
	json    slog.Handler  // writes lines of JSON into the queue
	begun   sync.Once
	ended   sync.Once
	stop    chan struct{}
	stopped chan struct{}

	mu      sync.Mutex
	refused map[string]*sampled // by rule
}

// sampled is how many refusals of one rule were written in a second.
type sampled struct {
	second  int64
	written int
	skipped uint64 // since the last that was written
}

func newAccessLog() *accessLog {
	a := &accessLog{
		queue: make(chan []byte, logQueue), refused: map[string]*sampled{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	a.json = slog.NewJSONHandler(a, &jsonLine)
	return a
}

// LogTo makes w what the access log is written to, or with nil stops writing.
// Lines of before the first call wait for it. Lines are whole: w gets one or more of them with each call.
func (g *Gate) LogTo(w io.Writer) {
	if w == nil {
		g.access.to.Store(nil)
		return
	}
	g.access.to.Store(&w)
	g.access.begun.Do(func() { go g.access.run() })
}

// LostLines returns how many lines of the access log were not written.
func (g *Gate) LostLines() uint64 { return g.access.dropped.Load() }

// close writes what waits, until ctx ends: a disk may never answer.
func (a *accessLog) close(ctx context.Context) {
	a.ended.Do(func() {
		close(a.stop)
		a.begun.Do(func() { close(a.stopped) }) // nothing was ever written
	})
	select {
	case <-a.stopped:
	case <-ctx.Done():
	}
}

func (a *accessLog) run() {
	defer close(a.stopped)
	var batch []byte
	for {
		select {
		case line := <-a.queue:
			batch = a.fill(append(batch[:0], line...))
		case <-a.stop:
			for batch = a.fill(batch[:0]); len(batch) > 0; batch = a.fill(batch[:0]) {
				a.flush(batch)
			}
			return
		}
		a.flush(batch)
	}
}

// fill adds what waits already.
func (a *accessLog) fill(batch []byte) []byte {
	for len(batch) < logBatch {
		select {
		case line := <-a.queue:
			batch = append(batch, line...)
		default:
			return batch
		}
	}
	return batch
}

// flush writes whole lines, or counts them as lost.
func (a *accessLog) flush(batch []byte) {
	lost := uint64(1)
	if w := a.to.Load(); w != nil {
		n, err := (*w).Write(batch)
		if err == nil {
			return
		}
		lost = lines(batch[n:])
	} else {
		lost = lines(batch)
	}
	a.dropped.Add(lost)
}

func lines(b []byte) (n uint64) {
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}

// Write takes one line, for slog's handler. It does not wait.
func (a *accessLog) Write(line []byte) (int, error) {
	select {
	case a.queue <- append([]byte(nil), line...):
	default:
		a.dropped.Add(1)
	}
	return len(line), nil
}

// keeps reports whether a refusal by rule is written, and how many were not
// since the last that was.
func (a *accessLog) keeps(c *config.AccessLog, rule string, now time.Time) (skipped uint64, ok bool) {
	if c.Refused < 0 {
		return 0, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.refused[rule]
	if s == nil {
		s = new(sampled)
		a.refused[rule] = s
	}
	if second := now.Unix(); second != s.second {
		s.second, s.written = second, 0
	}
	if s.written >= c.Refused {
		s.skipped++
		return 0, false
	}
	s.written++
	skipped, s.skipped = s.skipped, 0
	return skipped, true
}

// forget drops what is known of rules that are gone.
func (a *accessLog) forget(inUse map[string]*counts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.refused {
		if inUse[name] == nil {
			delete(a.refused, name)
		}
	}
}

// access is what the log tells of a request beyond the request itself.
type access struct {
	request *http.Request // as it came; nil: nothing is logged
	began   time.Time
	status  int
	at      string // the upstream that was asked last
	sent    int64  // bytes of the answer's body
	verdict string // what the gate did
	rule    string // that refused, or would have if it did not watch
	id      string // of the request, if it was refused
}

// log writes what became of v.
func (v *visit) log() {
	c := v.policy.access
	if v.request == nil || c == nil {
		return
	}
	now := v.gate.Wall()
	skipped, keep := uint64(0), c.Passed
	if v.verdict != verdictPassed {
		skipped, keep = v.gate.access.keeps(c, v.rule, now)
	}
	if !keep {
		return
	}
	if c.Format == config.Combined {
		v.gate.access.Write(v.combined(now))
		return
	}
	v.json(now, skipped)
}

// Verdicts as the log words them.
const (
	verdictPassed  = "passed"
	verdictRefused = "refused"
	verdictBlocked = "blocked"
	verdictInvalid = "invalid" // no rule could hold it, or no upstream takes it
)

var jsonLine = slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}}

func (v *visit) json(now time.Time, skipped uint64) {
	r, a := v.request, &v.asker
	line := slog.NewRecord(now, 0, "", 0)
	line.AddAttrs(
		slog.String("client", a.client.String()), slog.String("peer", a.peer.String()),
		slog.String("method", r.Method), slog.String("host", r.Host), slog.String("path", pathOf(r)),
		slog.String("protocol", r.Proto), slog.Int("status", v.status), slog.Int64("sent", v.sent),
		slog.Float64("seconds", float64(now.Sub(v.began).Microseconds())/1e6),
		slog.String("verdict", v.verdict),
	)
	for _, f := range []struct{ name, value string }{
		{"rule", v.rule}, {"request_id", v.id}, {"user", a.user}, {"owner", a.owner}, {"tenant", a.tenant},
		{"referer", r.Referer()}, {"user_agent", r.UserAgent()},
	} {
		if f.value != "" {
			line.AddAttrs(slog.String(f.name, f.value))
		}
	}
	if v.at != "" {
		line.AddAttrs(slog.String("upstream", v.at))
	}
	if skipped > 0 {
		line.AddAttrs(slog.Uint64("skipped", skipped))
	}
	v.gate.access.json.Handle(context.Background(), line)
}

// combined returns v as a line of the combined log format, with the rule and the
// request's id after it.
func (v *visit) combined(now time.Time) []byte {
	r, a := v.request, &v.asker
	b := a.client.AppendTo(make([]byte, 0, 256))
	b = append(b, " - "...)
	who := a.user
	if who == "" {
		who = a.owner
	}
	b = appendWord(b, who)
	b = now.AppendFormat(append(b, ' '), "[02/Jan/2006:15:04:05 -0700]")
	b = append(b, ` "`...)
	b = appendEscaped(b, r.Method)
	b = appendEscaped(append(b, ' '), pathOf(r))
	b = appendEscaped(append(b, ' '), r.Proto)
	b = strconv.AppendInt(append(b, `" `...), int64(v.status), 10)
	b = strconv.AppendInt(append(b, ' '), v.sent, 10)
	for _, s := range []string{r.Referer(), r.UserAgent(), v.rule, v.id} {
		if s == "" {
			s = "-"
		}
		b = appendEscaped(append(b, ` "`...), s)
		b = append(b, '"')
	}
	return append(b, '\n')
}

// appendWord appends s as a field that spaces end.
func appendWord(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b = appendHex(b, c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

// appendEscaped appends s so that it ends neither its quotes nor its line.
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b = appendHex(b, c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

func appendHex(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '\\', 'x', digits[c>>4], digits[c&15])
}
