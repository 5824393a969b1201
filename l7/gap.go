package l7

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/limit"
)

// gap decides which decisions are sampled. It has a bucket of samples: the more
// of it is used, the fewer are drawn.
type gap struct {
	full  atomic.Uint64 // when the bucket is full again
	shift atomic.Uint32 // one of 1<<shift is drawn
}

const (
	gapRefill = limit.Ticks(64 * time.Millisecond) // in ticks of 1/64 ns: one sample
	gapStep   = 32 * gapRefill                     // for each so much used, half as many are drawn
	mostShift = 16
)

// draws reports whether the decision at now is sampled, and for how many it
// stands. It writes nothing, so that it costs next to nothing on many CPUs.
func (g *gap) draws(now limit.Ticks) (stands uint32, ok bool) {
	shift := g.shift.Load()
	if shift == 0 || int64(now-g.full.Load()) > 0 {
		return 1, true
	}
	return 1 << shift, rand.Uint32()&(1<<shift-1) == 0
}

// took charges the bucket for one sample.
func (g *gap) took(now limit.Ticks) {
	full := g.full.Load()
	if int64(full-now) < 0 {
		full = now
	}
	g.full.Store(full + gapRefill)
	g.shift.Store(uint32(min((full-now)/gapStep, mostShift)))
}
