package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/fleet/board"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/redisrig"
)

// reader is a host with its copy of the board.
type reader struct {
	*Board
	*board.Follower

	mu     sync.Mutex
	copy   board.Copy
	synced int64
	drafts []board.Draft
	up     error
}

func (r *reader) Copy() (board.Copy, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := board.Copy{}
	for id, n := range r.copy {
		out[id] = n
	}
	return out, r.synced
}

func (r *reader) Drafts() []board.Draft {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]board.Draft(nil), r.drafts...)
}

func (r *reader) Posted(_ int64, posted []board.Notice) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range posted {
		r.copy[n.ID] = n
	}
	r.drafts = r.drafts[len(posted):]
	return nil
}

func (r *reader) Take(now int64, news []board.Notice, all bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.copy.Newer(news) {
		r.copy[n.ID] = n
	}
	r.copy.Forget(now)
	r.synced = now
	return nil
}

func (r *reader) draft(id, text string, left time.Duration, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drafts = append(r.drafts, board.Draft{Notice: board.Notice{ID: id, Keep: r.copy[id].Keep, Gone: gone, Sealed: []byte(text)}, Left: left})
}

func (r *reader) has(id, text string) bool {
	c, _ := r.Copy()
	n := c[id]
	return n.Version > 0 && string(n.Sealed) == text
}

// readBoard starts a host that keeps in step with the board at address.
func readBoard(t *testing.T, address, name string) *reader {
	t.Helper()
	b, err := NewBoard(Options{Name: "test", Secret: secret, Addresses: []string{address}, Host: name}, name, "1.0")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{Board: b, copy: board.Copy{}}
	r.Follower = board.NewFollower(b, r)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		b.Keep(ctx, r.Follower, func(err error) { r.mu.Lock(); r.up = err; r.mu.Unlock() })
		close(ended)
	}()
	t.Cleanup(func() { end(); <-ended; b.Close() })
	return r
}

// What one host posts all have, also a host that joins later; a Redis that was
// killed and is empty gets it back from them.
func TestBoard(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	var all []*reader
	for i := range 3 {
		all = append(all, readBoard(t, s.Addr, fmt.Sprint("host", i)))
	}
	agree := func(what, id, text string) {
		t.Helper()
		for _, r := range all {
			await.For(t, what, func() bool { return r.has(id, text) })
		}
	}
	all[0].draft("a", "a first", 0, false)
	all[1].draft("b", "for a while", time.Hour, false)
	for _, r := range all[:2] {
		if err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	agree("what was posted", "a", "a first")
	agree("what was posted", "b", "for a while")
	all[2].draft("a", "a second\x00\xff", 0, false)
	all[2].Sync(t.Context())
	agree("what was changed", "a", "a second\x00\xff")
	for i := range 450 { // several pages
		all[0].draft(fmt.Sprint("many", i), "m", 0, false)
	}
	if err := all[0].Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	agree("many", "many449", "m")
	await.For(t, "all say how far they are", func() bool {
		roll, err := all[0].Hosts(t.Context(), all[0].Cursor())
		n := 0
		for _, h := range roll.Hosts {
			if h.Revision == roll.Newest && h.Version == "1.0" && !h.Other {
				n++
			}
		}
		return err == nil && n == 3
	})

	s.Kill()
	await.For(t, "the outage is seen", func() bool { all[0].mu.Lock(); defer all[0].mu.Unlock(); return all[0].up != nil })
	all[1].draft("c", "drafted without Redis", 0, false)
	all[1].draft("a", "", 0, true)
	s.Again()
	agree("what was posted since", "c", "drafted without Redis")
	all = append(all, readBoard(t, s.Addr, "late"))
	agree("what Redis had lost", "b", "for a while")
	agree("what Redis had lost", "many449", "m")
	agree("what was taken down", "a", "")
}

// The script does what its model does.
func TestBoardIsItsModel(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	b, err := NewBoard(Options{Name: "test", Secret: secret, Addresses: []string{s.Addr}, Host: "h"}, "h", "1")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := board.NewModel()
	ctx := t.Context()
	keep := map[string]int64{}
	for i := range 300 {
		id := fmt.Sprint("id", rand.IntN(8))
		d := board.Draft{Notice: board.Notice{ID: id, Gone: rand.IntN(3) == 0, Sealed: []byte(fmt.Sprint(i))}}
		if rand.IntN(2) == 0 {
			d.Left = time.Duration(rand.IntN(3_000_000)) * time.Microsecond
		}
		if rand.IntN(2) == 0 {
			d.Keep = keep[id]
		}
		floor := int64(rand.IntN(2)) * (m.Now + 1000)
		now, posted, err := b.Post(ctx, floor, []board.Draft{d})
		if err != nil {
			t.Fatal(err)
		}
		m.Now = now
		_, want, _ := m.Post(ctx, floor, []board.Draft{d})
		if !reflect.DeepEqual(posted, want) {
			t.Fatalf("step %d: posted %+v, want %+v", i, posted, want)
		}
		keep[id] = posted[0].Keep
		since := max(0, posted[0].Version-int64(rand.IntN(50_000)))
		got, err := b.Pull(ctx, since, 0)
		if err != nil {
			t.Fatal(err)
		}
		m.Now = got.Now
		if want, _ := m.Pull(ctx, since, 0); !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: pulled %+v, want %+v", i, got, want)
		}
	}
	// Redis loses a part, and is given it back.
	all, _ := b.Pull(ctx, 0, 0)
	s.Client().HDel(ctx, b.keys[0], all.Notices[0].ID, all.Notices[2].ID)
	s.Client().Set(ctx, b.keys[1], "not what hosts write", 0)
	older := all.Notices[1]
	older.Version--
	older.Sealed = []byte("older")
	if err := b.Merge(ctx, append([]board.Notice{older}, all.Notices...)); err != nil {
		t.Fatal(err)
	}
	again, err := b.Pull(ctx, 0, 0)
	if err != nil || !reflect.DeepEqual(again.Notices, all.Notices) || again.Facts != all.Facts {
		t.Errorf("%v: given back %+v, were %+v", err, again, all)
	}
	for _, k := range b.keys {
		if ttl := s.Client().PTTL(ctx, k).Val(); ttl <= 0 {
			t.Errorf("%s has no end: %v", k, ttl)
		}
	}
}

// What was posted for a while is forgotten by hosts and by Redis.
func TestBoardIsBounded(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	b, err := NewBoard(Options{Name: "test", Secret: secret, Addresses: []string{s.Addr}, Host: "h"}, "h", "1")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for n := 0; n < board.Most; n += 1000 {
		drafts := make([]board.Draft, 1000)
		for i := range drafts {
			drafts[i].ID = fmt.Sprint(n + i)
		}
		if _, _, err := b.Post(t.Context(), 0, drafts); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.Post(t.Context(), 0, []board.Draft{{Notice: board.Notice{ID: "one more"}}}); err != board.ErrFull {
		t.Errorf("one more: %v", err)
	}
}
