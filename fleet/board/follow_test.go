package board

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// post is one host with its copy, what it has not posted yet, and the way to
// the authority, which may be cut.
type post struct {
	*Follower
	*Model
	copy   Copy
	synced int64
	drafts []Draft
	cut    bool
}

var errCut = errors.New("cut off")

func newPost(m *Model) *post {
	p := &post{Model: m, copy: Copy{}}
	p.Follower = NewFollower(p, p)
	return p
}

func (p *post) Pull(ctx context.Context, since, rev int64) (Page, error) {
	if p.cut {
		return Page{}, errCut
	}
	return p.Model.Pull(ctx, since, rev)
}

func (p *post) Post(ctx context.Context, floor int64, d []Draft) (int64, []Notice, error) {
	if p.cut {
		return 0, nil, errCut
	}
	return p.Model.Post(ctx, floor, d)
}

func (p *post) Merge(ctx context.Context, n []Notice) error {
	if p.cut {
		return errCut
	}
	return p.Model.Merge(ctx, n)
}

func (p *post) Copy() (Copy, int64) {
	out := Copy{}
	for id, n := range p.copy {
		out[id] = n
	}
	return out, p.synced
}

func (p *post) Drafts() []Draft { return slices.Clone(p.drafts) }

func (p *post) Posted(now int64, posted []Notice) error {
	for _, n := range posted {
		p.copy[n.ID] = n
		p.drafts = slices.DeleteFunc(p.drafts, func(d Draft) bool { return d.ID == n.ID })
	}
	return nil
}

func (p *post) Take(now int64, news []Notice, all bool) error {
	if all {
		p.copy = Copy{}
	}
	for _, n := range p.copy.Newer(news) {
		p.copy[n.ID] = n
	}
	p.copy.Forget(now)
	p.synced = now
	return nil
}

// draft has p say or take down something.
func (p *post) draft(id, text string, left time.Duration, gone bool) {
	p.drafts = slices.DeleteFunc(p.drafts, func(d Draft) bool { return d.ID == id })
	p.drafts = append(p.drafts, Draft{Notice{ID: id, Keep: p.copy[id].Keep, Sealed: []byte(text), Gone: gone}, left})
}

// Whatever hosts post, take down, miss while they are cut off, or lose when they
// begin anew, and whatever the authority loses: once all are connected, all hold
// the same, and of each thing what was posted last.
func TestCopiesAgree(t *testing.T) {
	rapid.Check(t, copiesAgree)
}

func copiesAgree(t *rapid.T) {
	m := NewModel()
	m.Now = 1_000_000_000
	hosts := []*post{newPost(m), newPost(m), newPost(m)}
	last := map[string]Notice{} // what was posted last, whatever Redis lost since
	sync := func(p *post) {
		drafted := map[string]bool{}
		for _, d := range p.drafts {
			drafted[d.ID] = true
		}
		if p.Sync(context.Background()) != nil {
			return
		}
		for id := range drafted {
			last[id] = p.copy[id]
		}
	}
	pick := rapid.SampledFrom(hosts)
	id := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	n := 0
	t.Repeat(map[string]func(*rapid.T){
		"post": func(t *rapid.T) {
			n++
			left := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "left")
			pick.Draw(t, "host").draft(id.Draw(t, "id"), fmt.Sprint(n), left, false)
		},
		"take down": func(t *rapid.T) {
			pick.Draw(t, "host").draft(id.Draw(t, "id"), "", 0, true)
		},
		"sync":    func(t *rapid.T) { sync(pick.Draw(t, "host")) },
		"cut":     func(t *rapid.T) { pick.Draw(t, "host").cut = true },
		"connect": func(t *rapid.T) { pick.Draw(t, "host").cut = false },
		"start anew": func(t *rapid.T) {
			p := pick.Draw(t, "host")
			p.Follower = NewFollower(p, p)
		},
		"time passes": func(t *rapid.T) {
			by := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 3 * time.Minute}).Draw(t, "by")
			m.Now += by.Microseconds()
		},
		"Redis loses all": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 || slices.ContainsFunc(hosts, func(p *post) bool { return p.cut }) {
				return
			}
			for range 2 { // what nobody else has heard of may be lost with it
				for _, p := range hosts {
					sync(p)
				}
			}
			m.newest, m.notices = 0, Copy{}
		},
	})
	for _, p := range hosts {
		p.cut = false
	}
	for range 3 {
		m.Now += again.Microseconds()
		for _, p := range hosts {
			sync(p)
		}
	}
	for id, n := range last {
		if n.ID == "" || n.over(m.Now) {
			delete(last, id)
		}
	}
	for i, p := range hosts {
		if len(p.drafts) > 0 {
			t.Fatalf("host %d has not posted %v", i, p.drafts)
		}
		for id, n := range last {
			if got := p.copy[id]; string(got.Sealed) != string(n.Sealed) || got.Gone != n.Gone || got.Version != n.Version {
				t.Fatalf("host %d has %+v of %s, posted last was %+v", i, got, id, n)
			}
		}
		if len(p.copy) != len(last) || p.copy.Facts() != m.notices.Facts() {
			t.Fatalf("host %d has %d, posted are %d", i, len(p.copy), len(last))
		}
	}
}

// RC-095: a host that was off when something was taken down does not bring it
// back, even where Redis has lost everything since.
func TestNothingComesBack(t *testing.T) {
	m := NewModel()
	m.Now = 1_000_000_000
	a, b := newPost(m), newPost(m)
	a.draft("x", "block", 0, false)
	for _, p := range []*post{a, b} {
		if err := p.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	b.cut = true
	a.draft("x", "", 0, true)
	a.Sync(context.Background())
	m.newest, m.notices = 0, Copy{}
	b.cut = false
	b.Follower = NewFollower(b, b)
	b.Sync(context.Background())
	if m.notices["x"].Gone {
		t.Fatal("the test is of no use: a was faster")
	}
	a.Follower = NewFollower(a, a)
	a.Sync(context.Background())
	b.Follower = NewFollower(b, b)
	b.Sync(context.Background())
	for _, p := range []*post{a, b} {
		if !p.copy["x"].Gone {
			t.Errorf("it came back: %+v", p.copy["x"])
		}
	}
}

// A host that was away for longer than what was taken down is remembered takes
// what there is, and brings back nothing of its own.
func TestAwayForLong(t *testing.T) {
	m := NewModel()
	m.Now = 1_000_000_000
	a, b := newPost(m), newPost(m)
	a.draft("x", "block", 0, false)
	a.draft("y", "block", 0, false)
	a.Sync(context.Background())
	b.Sync(context.Background())
	a.draft("x", "", 0, true)
	a.Sync(context.Background())
	m.Now += (Remembered + 2*Grace).Microseconds()
	a.Sync(context.Background())
	b.Follower = NewFollower(b, b)
	b.Sync(context.Background())
	if _, ok := b.copy["x"]; ok || len(b.copy) != 1 || len(m.notices) != 1 {
		t.Errorf("host has %v, posted are %v", b.copy, m.notices)
	}
}

func TestSeal(t *testing.T) {
	s := NewSealer([]byte("a secret of all hosts"))
	id := s.ID("block", "192.0.2.1/32")
	sealed, err := s.Seal(id, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	n := Notice{ID: id, Sealed: sealed}
	if text, err := s.Open(&n); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	other := NewSealer([]byte("another secret of hosts"))
	moved := Notice{ID: s.ID("block", "192.0.2.2/32"), Sealed: sealed}
	for _, open := range []func() ([]byte, error){
		func() ([]byte, error) { return other.Open(&n) },
		func() ([]byte, error) { return s.Open(&moved) },
		func() ([]byte, error) { return s.Open(&Notice{ID: id}) },
	} {
		if _, err := open(); err == nil {
			t.Error("opened")
		}
	}
	if other.ID("block", "192.0.2.1/32") == id {
		t.Error("a name tells what it is")
	}
	if _, err := s.Seal(id, make([]byte, MostText+1)); err == nil {
		t.Error("too long, and sealed")
	}
}
