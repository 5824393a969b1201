package daemon

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/config"
)

func block(t *testing.T, d *daemon, prefix, reason string, seconds int64) EntryReply {
	t.Helper()
	q := EntryRequest{Prefix: netip.MustParsePrefix(prefix), For: seconds, Ever: seconds == 0, Reason: reason}
	r, err := d.addEntry(t.Context(), blocks, q, Origin{From: FromCommand})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func listed(d *daemon) string {
	var out []string
	for _, e := range d.entries(blocks).Entries {
		out = append(out, short4(e.Prefix)+" "+e.Reason)
	}
	return strings.Join(out, ", ")
}

// RC-070: the end of one of two blocks leaves the prefix blocked until the
// longest, and the range around it untouched.
func TestBlocksEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "")
		ctx := t.Context()
		go b.d.expire(ctx)
		block(t, b.d, "198.51.0.0/16", "range", 3600)
		block(t, b.d, "198.51.0.7/32", "short", 300)
		block(t, b.d, "198.51.0.7/32", "long", 600)
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{299 * time.Second, "198.51.0.0/16 range, 198.51.0.7 short, 198.51.0.7 long"},
			{2 * time.Second, "198.51.0.0/16 range, 198.51.0.7 long"},
			{300 * time.Second, "198.51.0.0/16 range"},
			{3000 * time.Second, ""},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := listed(b.d); got != step.want {
				t.Errorf("blocked: %q, want %q", got, step.want)
			}
			b.d.mu.Lock()
			if n := len(b.d.policy.blocks); n != strings.Count(step.want, ",")+1 && step.want != "" || step.want == "" && n != 0 {
				t.Errorf("in force: %d entries, want %q", n, step.want)
			}
			b.d.mu.Unlock()
		}
	})
}

func TestEntryRequestsAreChecked(t *testing.T) {
	now := time.Now()
	good := netip.MustParsePrefix("192.0.2.0/24")
	for name, q := range map[string]EntryRequest{
		"no prefix":          {For: 1},
		"host bits":          {Prefix: netip.MustParsePrefix("192.0.2.1/24"), For: 1},
		"IPv4-mapped":        {Prefix: netip.MustParsePrefix("::ffff:192.0.2.0/120"), For: 1},
		"no time":            {Prefix: good},
		"two times":          {Prefix: good, For: 1, Ever: true},
		"negative":           {Prefix: good, For: -1},
		"too long":           {Prefix: good, For: 1 << 60},
		"reason of escapes":  {Prefix: good, For: 1, Reason: "\x1b[2J"},
		"reason of lines":    {Prefix: good, For: 1, Reason: "a\nb"},
		"reason, no UTF-8":   {Prefix: good, For: 1, Reason: "\xff"},
		"reason without end": {Prefix: good, For: 1, Reason: strings.Repeat("x", 257)},
	} {
		if _, err := newEntry(q, Origin{}, now); err == nil || codeOf(err) != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// RC-007 (management): whom a block would lock out, it names.
func TestBlocksThatLockOut(t *testing.T) {
	cfg, err := config.Parse("headgate.yaml", []byte(`version: 1
network: {interfaces: [], management: {sources: [10.0.0.0/8, "2001:db8:a::/48"], ports: [tcp/22]}}
http: {listen: ":8080", upstream: "http://127.0.0.1:9000", proxies: [192.0.2.80]}
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := merge(cfg, state{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := guard{peer: netip.MustParseAddr("198.51.100.50"), gateways: []netip.Addr{netip.MustParseAddr("203.0.113.1")}}
	for prefix, want := range map[string]string{
		"198.51.100.0/24": "198.51.100.50",
		"0.0.0.0/0":       "198.51.100.50",
		"10.9.0.0/16":     "10.0.0.0/8",
		"2001:db8::/32":   "2001:db8:a::/48",
		"192.0.2.0/24":    "proxy 192.0.2.80/32",
		"203.0.113.9/32":  "",
		"203.0.113.0/24":  "203.0.113.1, the default gateway",
	} {
		err := p.endangers(netip.MustParsePrefix(prefix), g)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", prefix, err, want)
		}
	}
}

// The lists of both gates: each prefix once, with its latest end.
func TestListsOfBothGates(t *testing.T) {
	now := time.Now()
	cfg, err := config.Parse("headgate.yaml", []byte("version: 1\nmode: watch\nallow: [192.0.2.1]\nblock: [198.51.100.0/24]\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := merge(cfg, state{
		Rules: []addedRule{{Name: "r", Text: "{name: r, match: {path: /x}, per: client, limit: 5/min}"}, {Name: "old", Text: "{nonsense: 1}"}},
		Blocks: []Entry{
			entry("198.51.100.0/24", "short", now.Add(time.Minute)),
			entry("203.0.113.1/32", "short", now.Add(time.Minute)),
			entry("203.0.113.1/32", "long", now.Add(time.Hour)),
		},
		Allows: []Entry{entry("192.0.2.1/32", "", time.Time{}), entry("192.0.2.2/32", "", now.Add(time.Hour))},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := p.lists()
	if end := l.Block[netip.MustParsePrefix("198.51.100.0/24")]; len(l.Block) != 2 || !end.IsZero() {
		t.Errorf("blocks %v: the file's never ends", l.Block)
	}
	if end := l.Block[netip.MustParsePrefix("203.0.113.1/32")]; !end.Equal(now.Add(time.Hour)) {
		t.Errorf("blocks %v: the latest end counts", l.Block)
	}
	if h := p.http(); len(l.Allow) != 2 || len(h.Allow) != 2 || len(h.Block) != 2 {
		t.Errorf("allow %v, at the HTTP gate %v and %v", l.Allow, h.Allow, h.Block)
	}
	if r := p.rules[0]; r.Mode != config.Watch {
		t.Errorf("an added rule under mode watch has mode %s", r.Mode)
	}
	if len(p.aside) != 1 || !strings.Contains(p.aside[0].aside, "does not read") {
		t.Errorf("aside %+v", p.aside)
	}
}
