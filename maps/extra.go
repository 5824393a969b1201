package maps

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

const (
	maxExtras  = 1024
	planBlocks = 1 << 0
)

// addExtra writes what a rule has beyond its limits: what unknown sources take
// together, and then. It returns the index, 0 for none.
func (c *compiler) addExtra(t *tables, r *config.Rule, id bpfLimitId) (uint16, error) {
	if r.Unknown == nil && r.Then == nil {
		return 0, nil
	}
	if !slices.Equal(r.Per, []config.Per{config.PerSource}) {
		return 0, errors.New("unknown and then need `per: source`")
	}
	if len(t.extras) == maxExtras {
		return 0, fmt.Errorf("more than %d rules with unknown or then", maxExtras-1)
	}
	var e bpfExtra
	if r.Unknown != nil {
		f, err := limit.NewFigures(r.Unknown.Amount, r.Unknown.Interval, oneSecond(*r.Unknown), r.Unknown.Unit == config.Bytes)
		if err != nil {
			return 0, fmt.Errorf("unknown: %w", err)
		}
		e.UnknownMult, e.UnknownShift, e.UnknownBurst = f.Mult, f.Shift, f.Burst
	}
	if r.Then != nil {
		after := r.Then.After
		f, err := limit.NewFigures(after.Amount, after.Interval, after.Amount, false)
		if err != nil {
			return 0, fmt.Errorf("then: after: %w", err)
		}
		if r.Then.Block < time.Second || r.Then.Block > longestBlock {
			return 0, fmt.Errorf("then: block %v: take 1s to %v", r.Then.Block, longestBlock)
		}
		e.StrikeSalt = c.salt(bpfSlotKindSLOT_STRIKE, id.Id)
		e.StrikeCost, e.StrikeBurst = f.Cost(1), f.Burst
		e.Block = uint64(r.Then.Block) * ticksPerNano
		if r.Mode != config.Watch {
			t.plan.Flags |= planBlocks
		}
	}
	t.extras = append(t.extras, e)
	return uint16(len(t.extras) - 1), nil
}

// oneSecond is how much a rate lets through in a second, at least its amount.
func oneSecond(r config.Rate) int64 {
	return max(r.Amount, int64(float64(r.Amount)/r.Interval.Seconds()))
}
