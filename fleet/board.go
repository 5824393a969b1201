package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/fleet/board"
)

// Board is the fleet's board in Redis: what holds on all hosts. It is safe for
// concurrent use. Make one with NewBoard.
type Board struct {
	client redis.UniversalClient
	keys   []string
	host   string // this process
	says   string // its name and version
}

// boardPatience is how long a call may take before it counts as lost: nobody's
// request waits for it.
const boardPatience = 2 * time.Second

// pageSize is how many notices an answer carries at most.
const pageSize = 200

// NewBoard returns the board of the fleet that o names, for a host that runs
// version. Nothing is sent before it is asked; Close ends it.
func NewBoard(o Options, life, version string) (*Board, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c, err := o.client(boardPatience)
	if err != nil {
		return nil, err
	}
	n := newNames(&o)
	return &Board{
		client: c, keys: n.board(), host: life,
		says: fmt.Sprintf("%s %s %s", word(o.Host), word(version), Fingerprint(o.Secret)),
	}, nil
}

// word is text without blanks, so that it can stand among others.
func word(text string) string {
	if text = strings.Join(strings.Fields(text), "_"); text == "" {
		return "-"
	}
	return text
}

// Close lets go of all connections.
func (b *Board) Close() error { return b.client.Close() }

// Pull is board.Authority's.
func (b *Board) Pull(ctx context.Context, since, revision int64) (p board.Page, err error) {
	reply, err := b.ask(ctx, revision, "pull", since, pageSize)
	if err != nil {
		return p, err
	}
	n := numbers{words: reply}
	p = board.Page{Now: n.int(), Newest: n.int(), Facts: board.Facts{Count: int(n.int()), Sum: n.int()}, More: n.int() == 1}
	for len(n.words) > 0 && n.err == nil {
		p.Notices = append(p.Notices, board.Notice{
			ID: n.next(), Version: n.int(), End: n.int(), Keep: n.int(), Gone: n.int() == 1, Sealed: []byte(n.next()),
		})
	}
	return p, n.err
}

// Post is board.Authority's.
func (b *Board) Post(ctx context.Context, floor int64, drafts []board.Draft) (now int64, posted []board.Notice, err error) {
	args := []any{floor}
	for _, d := range drafts {
		args = append(args, d.ID, d.Left.Microseconds(), d.Keep, bit(d.Gone), string(d.Sealed))
	}
	reply, err := b.ask(ctx, floor, "post", args...)
	if err != nil {
		return 0, nil, err
	}
	n := numbers{words: reply}
	now = n.int()
	for _, d := range drafts {
		out := d.Notice
		out.Version, out.End, out.Keep = n.int(), n.int(), n.int()
		posted = append(posted, out)
	}
	return now, posted, n.err
}

// Merge is board.Authority's.
func (b *Board) Merge(ctx context.Context, notices []board.Notice) error {
	var args []any
	for _, n := range notices {
		args = append(args, n.ID, n.Version, n.End, n.Keep, bit(n.Gone), string(n.Sealed))
	}
	_, err := b.ask(ctx, 0, "merge", args...)
	return err
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (b *Board) ask(ctx context.Context, revision int64, what string, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, boardPatience)
	defer cancel()
	all := append([]any{b.host, fmt.Sprintf("%s %d", b.says, revision), what}, args...)
	reply, err := boardScript.Run(ctx, b.client, b.keys, all...).Slice()
	if err != nil && strings.HasPrefix(err.Error(), "FULL") {
		err = board.ErrFull
	}
	return reply, err
}

// Wait returns when something was posted after since, or after a while.
func (b *Board) Wait(ctx context.Context, since int64, while time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, while+boardPatience)
	defer cancel()
	err := b.client.XRead(ctx, &redis.XReadArgs{
		Streams: []string{b.keys[3], fmt.Sprintf("%d-0", since)}, Count: 1, Block: while,
	}).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// HostSeen is what a host says of itself.
type HostSeen struct {
	Name     string
	Version  string
	Revision int64         // as far as it follows the board
	Ago      time.Duration // since it was heard of
	Other    bool          // it has another secret
	Life     string        // its process
}

// Roll is all hosts of the last day.
type Roll struct {
	Now    int64 // Redis' clock, microseconds
	Newest int64 // version posted last
	Hosts  []HostSeen
}

// Hosts calls the roll.
func (b *Board) Hosts(ctx context.Context, revision int64) (r Roll, err error) {
	reply, err := b.ask(ctx, revision, "hosts")
	if err != nil {
		return r, err
	}
	n := numbers{words: reply}
	r.Now, r.Newest = n.int(), n.int()
	_, own, _ := strings.Cut(b.says, " ")
	_, own, _ = strings.Cut(own, " ")
	for len(n.words) > 0 && n.err == nil {
		h := HostSeen{Life: n.next()}
		var seen int64
		var print string
		if _, err := fmt.Sscan(n.next(), &seen, &h.Name, &h.Version, &print, &h.Revision); err != nil {
			continue // another version wrote it
		}
		h.Ago, h.Other = time.Duration(r.Now-seen)*time.Microsecond, print != own
		r.Hosts = append(r.Hosts, h)
	}
	return r, n.err
}

// Keep keeps host in step until ctx ends. change is called when the board
// comes within reach, with nil, or goes out of it.
func (b *Board) Keep(ctx context.Context, f *board.Follower, change func(error)) error {
	const while = time.Second
	probe, up, known := firstProbe, false, false
	for ctx.Err() == nil {
		err := f.Sync(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if up != (err == nil) || !known {
			up, known = err == nil, true
			change(err)
		}
		if err == nil {
			probe = firstProbe
			err = b.Wait(ctx, f.Cursor(), while)
		}
		if err != nil {
			probe = min(probe*2, lastProbe)
			rest(ctx, jitter(probe))
		}
	}
	return nil
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
