package board

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// Model is the model of the script in Redis: what is posted, by a clock that
// the test sets. It is not safe for concurrent use.
type Model struct {
	Now     int64
	newest  int64
	notices Copy
}

// NewModel returns one with nothing posted.
func NewModel() *Model { return &Model{notices: Copy{}} }

// Pull is Authority's.
func (m *Model) Pull(_ context.Context, since, _ int64) (Page, error) {
	m.notices.Forget(m.Now)
	p := Page{Now: m.Now, Newest: m.newest, Facts: m.notices.Facts()}
	for _, n := range m.notices {
		if n.Version > since {
			p.Notices = append(p.Notices, n)
		}
	}
	slices.SortFunc(p.Notices, func(a, b Notice) int { return cmp.Compare(a.Version, b.Version) })
	if p.More = len(p.Notices) > batch; p.More {
		p.Notices = p.Notices[:batch]
	}
	return p, nil
}

// ErrFull says that the fleet has all the notices it may have.
var ErrFull = errors.New("the fleet has as many blocks, allows and rules for all hosts as it may have: take some down, or use a list")

// Post is Authority's.
func (m *Model) Post(_ context.Context, floor int64, drafts []Draft) (int64, []Notice, error) {
	m.notices.Forget(m.Now)
	if len(m.notices)+len(drafts) > Most {
		return 0, nil, ErrFull
	}
	version := max(m.Now, m.newest+1, floor+1)
	var out []Notice
	for _, d := range drafts {
		n := d.Notice
		n.Version, n.End = version, 0
		if d.Left > 0 {
			n.End = m.Now + d.Left.Microseconds()
		}
		n.keep(m.Now, d.Keep, m.notices[n.ID].Keep)
		m.notices[n.ID] = n
		out = append(out, n)
		m.newest = version
		version++
	}
	return m.Now, out, nil
}

// Merge is Authority's.
func (m *Model) Merge(_ context.Context, notices []Notice) error {
	m.notices.Forget(m.Now)
	if len(m.notices)+len(notices) > Most {
		return ErrFull
	}
	for _, n := range notices {
		if m.notices[n.ID].Version < n.Version && !n.over(m.Now) {
			m.notices[n.ID] = n
			m.newest = max(m.newest, n.Version)
		}
	}
	m.newest = max(m.Now, m.newest+1)
	return nil
}
