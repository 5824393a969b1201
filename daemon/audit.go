package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate/maps"
)

const (
	// auditEvery is how often the pinned maps and the state file are compared
	// with what is in force. Where that takes long it is done less often: it is
	// to take at most a fiftieth of one CPU.
	auditEvery = 5 * time.Second
	auditShare = 50
	// mostBusy is how often in a row an audit may find that it was disturbed;
	// then changes wait until it is done.
	mostBusy = 5
)

// auditStatus is what was found so far. The network holds it.
type auditStatus struct {
	repaired uint64    // entries
	last     time.Time // when
	busy     int       // audits in a row that were disturbed
}

// audit compares what is in force with what is really there, until ctx ends:
// others may edit the pinned maps and the state file.
func (d *daemon) audit(ctx context.Context) error {
	for pause(ctx, auditEvery); ctx.Err() == nil; {
		began := time.Now()
		d.auditState()
		d.auditMaps(ctx)
		pause(ctx, max(auditEvery, auditShare*time.Since(began)))
	}
	return nil
}

// auditState writes the state file anew where it is gone or not what was
// written.
func (d *daemon) auditState() {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.store.same()
	if found == nil {
		return
	}
	kept, err := d.store.setAside("changed")
	if err == nil {
		err = d.store.save(d.added, d.now())
	}
	if err != nil {
		d.stateErr = fmt.Errorf("%w, and cannot be written anew: %w", found, err)
		d.log.Error("the state file is not what was written", "err", d.stateErr)
		return
	}
	d.stateErr = nil
	d.log.Warn("the state file was not what was written: it is written anew", "cause", found, "kept", kept)
}

// auditMaps puts right what others changed in the pinned maps.
func (d *daemon) auditMaps(ctx context.Context) {
	found, err := d.network.audit()
	switch {
	case errors.Is(err, maps.ErrBusy), errors.Is(err, os.ErrClosed):
		return
	case err != nil:
		d.log.Error("compare the pinned maps with what is in force", "err", err)
		return
	}
	if found.Rules {
		d.mu.Lock()
		err = d.network.update(d.policy, nil)
		d.mu.Unlock()
		if err != nil {
			d.log.Error("write the rules anew, which others changed in the pinned maps", "err", err)
			return
		}
	}
	if n := entriesIn(found); n > 0 {
		d.log.Warn("others changed the pinned maps: put right", "entries", n, "first", firstFault(found))
	}
}

func entriesIn(a maps.Audit) int {
	n := len(a.Prefixes)
	for _, whole := range []bool{a.Control, a.Rules} {
		if whole {
			n++
		}
	}
	return n
}

// firstFault names one of what was found.
func firstFault(a maps.Audit) string {
	for _, f := range a.Prefixes {
		return fmt.Sprintf("%s was %s", f.Prefix, f.What)
	}
	if a.Control {
		return "the control entry or the roots of prefixes"
	}
	return "the tables of rules"
}

// audit looks at the maps without keeping others from the network: a gate that
// is let go of meanwhile has nothing to be put right.
func (n *network) audit() (maps.Audit, error) {
	n.mu.Lock()
	g, hold := n.gate, n.audited.busy >= mostBusy
	n.mu.Unlock()
	if g == nil {
		return maps.Audit{}, nil
	}
	found, err := g.Audit(hold)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate != g {
		return maps.Audit{}, os.ErrClosed
	}
	if errors.Is(err, maps.ErrBusy) {
		n.audited.busy++
		return found, err
	}
	n.audited.busy = 0
	if k := entriesIn(found); k > 0 {
		n.audited.repaired += uint64(k)
		n.audited.last = time.Now()
	}
	return found, err
}
