package l7

import (
	"errors"
	"io"
	"time"

	"github.com/headgate/headgate/limit"
)

// Save writes what buckets have spent to w, about most bytes of it, for a gate of
// the same Policy.Secret to go on with. It is for after Shutdown: what is spent
// meanwhile may be missing.
func (g *Gate) Save(w io.Writer, most int) (limit.Saved, error) {
	return g.store.Save(w, g.now(), most)
}

// Restore charges to the buckets what Save wrote that long ago. It is for between
// the first SetPolicy and the first Serve; what is of no rule any more is left
// out.
func (g *Gate) Restore(data []byte, ago time.Duration) (limit.Saved, error) {
	if g.policy.Load() == nil {
		return limit.Saved{}, errors.New("restore buckets: there is no policy yet")
	}
	return g.store.Restore(data, g.now(), limit.FromDuration(max(0, min(ago, longestAgo))))
}

// longestAgo is when all is full again: no window is longer than a year.
const longestAgo = 2 * 365 * 24 * time.Hour
