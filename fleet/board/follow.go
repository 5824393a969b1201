package board

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Authority is where notices are posted for all to see.
type Authority interface {
	// Pull returns what was posted after since, in the order of versions. It
	// notes that this host is as far as revision.
	Pull(ctx context.Context, since, revision int64) (Page, error)
	// Post posts drafts under versions later than floor and than all that were
	// posted before, and returns them with version, end and keep.
	Post(ctx context.Context, floor int64, drafts []Draft) (now int64, posted []Notice, err error)
	// Merge posts notices as they are, where they are newer than what is there,
	// and counts all anew.
	Merge(ctx context.Context, notices []Notice) error
}

// Page is an answer of the authority.
type Page struct {
	Now     int64 // its clock, microseconds
	Newest  int64 // version given last
	Facts         // of all that is posted
	Notices []Notice
	More    bool // there are later ones
}

// Draft is a notice that is to be posted, for so long from now. Its Keep is that
// of the notice whose place it takes, as far as the host knows.
type Draft struct {
	Notice
	Left time.Duration // 0: for ever
}

// Holder keeps this host's copy, and puts in force what it says.
type Holder interface {
	// Copy returns what was posted as far as this host knows, and when that
	// was last true, by the authority's clock.
	Copy() (c Copy, synced int64)
	// Drafts returns what this host has not posted yet.
	Drafts() []Draft
	// Posted takes up that what was drafted is posted.
	Posted(now int64, posted []Notice) error
	// Take keeps news, forgets what is over at now, and, where all is set, what
	// is not among news.
	Take(now int64, news []Notice, all bool) error
}

// batch is how many notices go to the authority at once.
const batch = 100

// Follower keeps one host in step.
type Follower struct {
	at   Authority
	host Holder

	mu     sync.Mutex
	cursor int64 // what this process has pulled up to
	// disagreed is when the copy was last compared in whole, by the authority's
	// clock, so that a host which cannot keep something does not compare without
	// end.
	disagreed int64
}

// again is how soon two copies that differ are compared once more.
const again = 5 * time.Second

// NewFollower returns one that has pulled nothing yet.
func NewFollower(at Authority, host Holder) *Follower { return &Follower{at: at, host: host} }

// Sync brings this host and the authority in step, now.
func (f *Follower) Sync(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, synced := f.host.Copy()
	if err := f.post(ctx); err != nil {
		return err
	}
	take := func(p Page) error { return f.host.Take(p.Now, p.Notices, false) }
	before := f.cursor
	page, err := f.pull(ctx, f.cursor, take)
	if err == nil && f.cursor != before { // who posted waits to hear how far this host is
		page, err = f.pull(ctx, f.cursor, take)
	}
	if err != nil {
		return err
	}
	c, _ := f.host.Copy()
	c.Forget(page.Now)
	if c.Facts() == page.Facts {
		return nil
	}
	if since := page.Now - f.disagreed; since >= 0 && since < again.Microseconds() {
		return nil
	}
	f.disagreed = page.Now
	return f.compare(ctx, c, synced)
}

// Cursor returns the version up to which this host follows.
func (f *Follower) Cursor() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cursor
}

func (f *Follower) post(ctx context.Context) error {
	drafts := f.host.Drafts()
	for len(drafts) > 0 {
		some := drafts[:min(batch, len(drafts))]
		drafts = drafts[len(some):]
		c, _ := f.host.Copy()
		now, posted, err := f.at.Post(ctx, c.Newest(), some)
		if err != nil {
			return err
		}
		if err := f.host.Posted(now, posted); err != nil {
			return err
		}
	}
	return nil
}

// pull hands all pages after since to take, and returns the last.
func (f *Follower) pull(ctx context.Context, since int64, take func(Page) error) (Page, error) {
	for {
		page, err := f.at.Pull(ctx, since, f.cursor)
		if err != nil {
			return page, err
		}
		if err := take(page); err != nil {
			return page, fmt.Errorf("keep what the fleet says: %w", err)
		}
		for _, n := range page.Notices {
			since = max(since, n.Version)
		}
		if !page.More {
			f.cursor = page.Newest
			return page, nil
		}
	}
}

// compare pulls everything, takes what is newer, and posts what the authority
// has lost. A host that was away for so long that what was taken down may be
// forgotten takes everything as it is there instead.
func (f *Follower) compare(ctx context.Context, c Copy, synced int64) error {
	var all []Notice
	page, err := f.pull(ctx, 0, func(p Page) error {
		all = append(all, p.Notices...)
		return nil
	})
	if err != nil {
		return err
	}
	if away := page.Now - synced; synced != 0 && away > (Remembered*9/10).Microseconds() && len(all) > 0 {
		return f.host.Take(page.Now, all, true)
	}
	news := c.Newer(all)
	if len(news) > 0 {
		if err := f.host.Take(page.Now, news, false); err != nil {
			return fmt.Errorf("keep what the fleet says: %w", err)
		}
	}
	lost := c.Lacking(all)
	for {
		some := lost[:min(batch, len(lost))]
		if lost = lost[len(some):]; len(some)+len(news) == 0 || len(some) > 0 {
			if err := f.at.Merge(ctx, some); err != nil {
				return err
			}
		}
		if len(lost) == 0 {
			return nil
		}
	}
}
