package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/maps"
)

// publisher is an https server whose answer a test chooses.
type publisher struct {
	*httptest.Server
	answer atomic.Value // func(http.ResponseWriter, *http.Request)
	asked  atomic.Int32
}

func newPublisher(t *testing.T) *publisher {
	t.Helper()
	p := &publisher{}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		p.answer.Load().(func(http.ResponseWriter, *http.Request))(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) says(text string) {
	p.answer.Store(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
}

// use makes the daemon's config have lists, with block and allow naming some.
func (b *bench) use(t *testing.T, p *publisher, block, allow []string, lists ...config.List) {
	t.Helper()
	if p != nil {
		client := p.Client()
		client.CheckRedirect = onlySecure
		b.d.lists.fetch.client = client
	}
	cfg := *b.d.policy.cfg
	cfg.Lists, cfg.BlockLists, cfg.AllowLists = lists, block, allow
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if err := b.d.install(context.Background(), loaded{cfg: &cfg}, terms{}); err != nil {
		t.Fatal(err)
	}
}

// refresh asks for the list that is due first.
func (b *bench) refresh(t *testing.T) ListStatus {
	t.Helper()
	next, _ := b.d.nextList()
	b.d.takeList(context.Background(), b.d.lists.fetch.get(context.Background(), next, b.d.now()))
	st := b.d.snapshot(context.Background())
	if len(st.Lists) != 1 {
		t.Fatalf("%d lists in the status", len(st.Lists))
	}
	return st.Lists[0]
}

func (b *bench) gives(p string) maps.Held { return b.d.policy.held(netip.MustParsePrefix(p)) }

// A list with an address: fetched, put in force, and kept when its source goes
// wrong, in whatever way.
func TestListByHTTPS(t *testing.T) {
	p := newPublisher(t)
	b := newBench(t, "network: {management: {sources: [10.0.0.0/8], ports: [tcp/22]}}")
	drop := config.List{Name: "drop", URL: p.URL + "/drop.txt", Interval: time.Hour}
	b.use(t, p, []string{"drop"}, nil, drop)
	if st := b.d.snapshot(context.Background()); len(st.Faults) != 1 || !strings.Contains(st.Faults[0], "list drop is empty: not read yet") {
		t.Errorf("a list that was never read: %q", st.Faults)
	}
	p.says("192.0.2.0/24 ; SBL1\r\n198.51.100.7\r\n")
	if st := b.refresh(t); st.Prefixes != 2 || st.Error != "" || !b.gives("192.0.2.0/24").Block {
		t.Fatalf("the first content: %+v", st)
	}
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	text := func(s string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) }
	}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		says   string
	}{
		{"down", status(503), "503"},
		{"gone", status(404), "404"},
		{"no list", text("<html>\nsorry\n</html>\n"), "3"},
		{"one broken line", text("192.0.2.0/24\n1.2.3.4/33\n"), ":2:1:"},
		{"nothing", text("# nothing today\n"), "holds no prefix"},
		{"everyone", text("0.0.0.0/0\n"), "every address"},
		{"who steers us", text("192.0.2.0/24\n10.1.0.0/16\n"), "management source"},
		{"cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "192.0.2.0/24\n")
		}, "EOF"},
		{"not secure", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+r.Host+"/x", http.StatusFound)
		}, "no https"},
		{"in circles", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+r.Host+"/x", http.StatusFound)
		}, "redirects more than"},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			for line := []byte(strings.Repeat("# more\n", 1<<17)); ; {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, "larger than 64 MB"},
	} {
		p.answer.Store(c.answer)
		if st := b.refresh(t); !strings.Contains(st.Error, c.says) || st.Prefixes != 2 || !b.gives("198.51.100.7/32").Block {
			t.Errorf("%s: %+v, want %q and the last good content", c.name, st, c.says)
		}
	}
	p.says("192.0.2.0/24\n203.0.113.0/24\n")
	if st := b.refresh(t); st.Error != "" || st.Prefixes != 2 || b.gives("198.51.100.7/32").Block || !b.gives("203.0.113.0/24").Block {
		t.Errorf("after it came back: %+v", st)
	}
	// and the copy of that is what the next daemon starts with
	kept, err := b.d.lists.open(b.d.policy.cfg, nil, time.Now())
	if err != nil || fmt.Sprint(kept["drop"].prefixes) != "[192.0.2.0/24 203.0.113.0/24]" || kept["drop"].read.IsZero() {
		t.Errorf("the copy: %v, %v", kept["drop"], err)
	}
	elsewhere := *b.d.policy.cfg
	elsewhere.Lists = []config.List{{Name: "drop", URL: p.URL + "/other", Interval: time.Hour}}
	if kept, err := b.d.lists.open(&elsewhere, nil, time.Now()); err != nil || kept["drop"].prefixes != nil {
		t.Errorf("a copy of another source was taken: %v, %v", kept["drop"], err)
	}
}

// Plain http is not asked, even if a config were to name it.
func TestListNeverByHTTP(t *testing.T) {
	asked := false
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer plain.Close()
	k := newFetcher("test").get(context.Background(), keptList{List: config.List{Name: "l", URL: plain.URL}}, time.Now())
	if k.err == nil || asked {
		t.Errorf("asked: %v, error %v", asked, k.err)
	}
}

// A checksum in the config, and a source that tells what did not change.
func TestListChecksumAndTag(t *testing.T) {
	p := newPublisher(t)
	b := newBench(t, "")
	const text = "192.0.2.0/24\n"
	sum := sha256.Sum256([]byte(text))
	b.use(t, p, []string{"l"}, nil, config.List{Name: "l", URL: p.URL, Interval: time.Hour, SHA256: hex.EncodeToString(sum[:])})
	p.says(text + "198.51.100.0/24\n")
	if st := b.refresh(t); !strings.Contains(st.Error, "SHA-256") || st.Prefixes != 0 {
		t.Errorf("another content: %+v", st)
	}
	p.answer.Store(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		if r.Header.Get("If-None-Match") == `"one"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, text)
	})
	for range 2 {
		if st := b.refresh(t); st.Error != "" || st.Prefixes != 1 || !b.gives("192.0.2.0/24").Block {
			t.Errorf("%+v", st)
		}
	}
}

// When a list is due: at once, after its interval, and sooner after a failure.
func TestListDue(t *testing.T) {
	now := time.Now()
	hourly := config.List{Name: "l", URL: "https://lists.example", Interval: time.Hour}
	for _, c := range []struct {
		k    keptList
		want time.Time
	}{
		{keptList{List: hourly}, time.Time{}},
		{keptList{List: hourly, tried: now}, now.Add(time.Hour)},
		{keptList{List: hourly, tried: now, err: errNotRead}, now.Add(retryList)},
		{keptList{List: config.List{Interval: time.Minute}, tried: now, err: errNotRead}, now.Add(time.Minute)},
	} {
		if got := c.k.due(); !got.Equal(c.want) {
			t.Errorf("due %v, want %v", got, c.want)
		}
	}
}

// The task asks at once, and what it hears is in force.
func TestFetchLists(t *testing.T) {
	p := newPublisher(t)
	p.says("192.0.2.0/24\n")
	b := newBench(t, "")
	b.use(t, p, nil, []string{"friends"}, config.List{Name: "friends", URL: p.URL, Interval: time.Hour})
	background(t, b.d.fetchLists)
	await.For(t, "the list is in force", func() bool {
		b.d.mu.Lock()
		defer b.d.mu.Unlock()
		return b.gives("192.0.2.0/24").Allow
	})
	if n := p.asked.Load(); n != 1 {
		t.Errorf("asked %d times, want once an hour", n)
	}
}

// A list that is a file: read at once, again when it changes, and kept when the
// change is broken.
func TestListByFile(t *testing.T) {
	b := newBench(t, "")
	path := filepath.Join(b.dir, "bad.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bad := config.List{Name: "bad", File: "bad.txt"}
	cfg := *b.d.policy.cfg
	cfg.Lists, cfg.BlockLists = []config.List{bad}, []string{"bad"}
	if err := b.d.install(context.Background(), loaded{cfg: &cfg}, terms{}); err == nil || !strings.Contains(err.Error(), "list bad: ") || codeOf(err) != 400 {
		t.Fatalf("a file that is not there: %v", err)
	}
	write("192.0.2.0/24\n")
	b.use(t, nil, []string{"bad"}, nil, bad)
	if !b.gives("192.0.2.0/24").Block {
		t.Fatal("the list is not in force")
	}
	background(t, b.d.watchLists)
	status := func() ListStatus { return b.d.snapshot(context.Background()).Lists[0] }
	write("198.51.100.0/24\n203.0.113.0/24\n")
	await.For(t, "the change is in force", func() bool { return status().Prefixes == 2 })
	write("198.51.100.0/24\nnonsense\n")
	await.For(t, "the broken line is told", func() bool { return strings.Contains(status().Error, "bad.txt:2:1") })
	if st := status(); st.Prefixes != 2 {
		t.Errorf("a broken file: %+v, want the last good content", st)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	kept, err := b.d.lists.open(b.d.policy.cfg, nil, time.Now())
	if err != nil || len(kept["bad"].prefixes) != 2 || kept["bad"].err == nil {
		t.Errorf("a start without the file: %+v, %v; want the copy, and the error told", kept["bad"], err)
	}
	// what a list blocks is not lifted by hand, and it says where it is
	if _, err := b.d.removeEntry(context.Background(), blocks, EntryRemoval{Prefix: netip.MustParsePrefix("198.51.100.0/24")}, Origin{}); err == nil || !strings.Contains(err.Error(), "by the list bad") {
		t.Errorf("unblock: %v", err)
	}
}

// RC-097: a refresh with nearly the same content touches the difference only.
func TestListRefreshTouchesTheDifference(t *testing.T) {
	p := newPublisher(t)
	b := gated(t, maps.Options{})
	all := farApart(1000)
	b.use(t, p, []string{"l"}, nil, config.List{Name: "l", URL: p.URL, Interval: time.Hour})
	p.says(string(prefixLines(all[:1190])))
	b.refresh(t)
	if n := len(b.inForce(t)); n != 1190 {
		t.Fatalf("%d blocks are in force, want 1190", n)
	}
	before := b.d.policy
	p.says(string(prefixLines(all[10:])))
	b.refresh(t)
	if n := len(b.inForce(t)); n != 1190 {
		t.Errorf("%d blocks are in force, want 1190", n)
	}
	few, many := before.changes(b.d.policy)
	if len(few) != 0 || len(many) != 1 || len(many[0]) != 20 {
		t.Errorf("%d prefixes and %d lists were looked at, want one list of the 20 that differ", len(few), len(many))
	}
}

// A list that rules name: the rules are compiled anew with what it holds.
func TestRulesWithLists(t *testing.T) {
	p := newPublisher(t)
	b := newBench(t, "")
	rule := config.Rule{Name: "r", Gate: config.GateNetwork, Match: config.Match{From: config.Addresses{Lists: []string{"l"}}}}
	b.use(t, p, nil, nil, config.List{Name: "l", URL: p.URL, Interval: time.Hour}, config.List{Name: "other", URL: p.URL, Interval: 2 * time.Hour})
	with := *b.d.policy
	with.rules = []liveRule{{Rule: rule}}
	next := with
	next.named = map[string][]netip.Prefix{"l": farApart(3)}
	if with.sameRules(&next) {
		t.Error("a rule whose list differs is taken for the same")
	}
	next.named = map[string][]netip.Prefix{"other": farApart(3)}
	if !with.sameRules(&next) {
		t.Error("a list that no rule names makes the rules differ")
	}
}
