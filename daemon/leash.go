package daemon

import (
	"context"
	"time"

	"github.com/headgate/headgate/maps"
)

const (
	// leashEvery is how often the data path is told that a daemon lives.
	leashEvery = 20 * time.Second
	// trialGrace is how long after the end of a trial a dead daemon may take to
	// come back and roll it back, before the data path passes everything.
	trialGrace = 30 * time.Second
)

// keepLeash tells the data path again and again that a daemon lives, until ctx
// ends.
func (d *daemon) keepLeash(ctx context.Context) error {
	for ctx.Err() == nil {
		d.mu.Lock()
		d.holdLeash()
		d.mu.Unlock()
		pause(ctx, leashEvery)
	}
	return nil
}

// holdLeash tells the data path how long it filters from now on without a
// daemon. The caller holds d.mu.
func (d *daemon) holdLeash() { d.network.setLeash(d.leash()) }

// leash is that time; 0 is for ever. A trial shortens it to its own end: with
// the daemon dead nobody could take back what nobody has confirmed, and a gate
// that passes everything locks nobody out.
func (d *daemon) leash() time.Duration {
	leash := d.policy.cfg.Network.Leash
	if d.trial == nil {
		return leash
	}
	left := max(0, d.trial.left(d.boot())) + trialGrace
	if leash == 0 {
		return left
	}
	return min(leash, left)
}

func (n *network) setLeash(leash time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate != nil {
		n.gate.SetLeash(leash)
	}
}

// setOpen opens the network gate to everything, or ends that.
func (d *daemon) setOpen(q OpenRequest, who Origin) (OpenReply, error) {
	if err := checkText("why", q.Why); err != nil {
		return OpenReply{}, err
	}
	was, err := d.network.setOpen(q.Open)
	if err != nil {
		return OpenReply{}, err
	}
	if was != q.Open || q.Done {
		who.Why = q.Why
		what := "panic --off"
		if q.Open {
			what = "panic"
		}
		d.log.Warn("the network gate was opened or closed by hand", "open", q.Open, "by", who.By)
		d.note(change{what: what, subject: "network gate", who: who})
	}
	return OpenReply{Open: q.Open}, nil
}

func (n *network) setOpen(open bool) (was bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return false, refuse("the network gate is off or detached: it drops nothing")
	}
	was = n.gate.Opened()
	n.gate.SetOpen(open)
	return was, nil
}

// OpenPinned opens the gate whose maps are pinned under pins, or ends that,
// without asking a daemon.
func OpenPinned(pins string, open bool) error { return maps.SetOpen(pins, open) }
