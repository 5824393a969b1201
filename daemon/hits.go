package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// hitsEvery is how often rules are asked whether they were hit: what their
// users read in days need not be exact to the second.
const hitsEvery = time.Minute

// hit is what is known of one rule, by the counters that it has had.
type hit struct {
	Judged  uint64    `json:"judged"` // counters when last looked at
	Refused uint64    `json:"refused"`
	Since   time.Time `json:"since"` // first seen in force
	Last    time.Time `json:"last_hit,omitzero"`
	LastNo  time.Time `json:"last_refused,omitzero"`
}

// hits keeps when each rule was last hit, by name, over restarts.
type hits struct {
	path string
	all  map[string]hit
}

// openHits reads what was kept. A file that does not read only means that the
// times begin anew; the error says so.
func openHits(dir string) (*hits, error) {
	h := &hits{path: filepath.Join(dir, "hits.json"), all: map[string]hit{}}
	data, err := os.ReadFile(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &h.all)
	}
	if err != nil {
		h.all = map[string]hit{}
		return h, fmt.Errorf("read when rules were last hit, %s: %w (their times begin anew)", h.path, err)
	}
	return h, nil
}

// see compares the counters of rules with those last seen. Counters that went
// back began anew. A rule that is gone is forgotten.
func (h *hits) see(rules []Rule, now time.Time) {
	now = stamp(now)
	next := make(map[string]hit, len(rules))
	for _, r := range rules {
		if r.Aside != "" {
			if old, ok := h.all[r.Name]; ok && !hasRule(rules, r.Name) {
				next[r.Name] = old
			}
			continue
		}
		x, known := h.all[r.Name]
		if !known {
			x.Since = now
		}
		judged, refused := counted(r)
		if judged == 0 { // it has judged nothing, or nobody can tell just now
			next[r.Name] = x
			continue
		}
		if judged < x.Judged || refused < x.Refused {
			x.Judged, x.Refused = 0, 0
		}
		if judged > x.Judged {
			x.Last = now
		}
		if refused > x.Refused {
			x.LastNo = now
		}
		x.Judged, x.Refused = judged, refused
		next[r.Name] = x
	}
	h.all = next
}

// hasRule reports whether a rule of that name is in force.
func hasRule(rules []Rule, name string) bool {
	for _, r := range rules {
		if r.Name == name && r.Aside == "" {
			return true
		}
	}
	return false
}

// counted returns how many packets or requests r has judged, and how many of
// them it refused or would have.
func counted(r Rule) (judged, refused uint64) {
	v := r.Packets
	if r.Requests != nil {
		v = r.Requests
	}
	if v == nil {
		return 0, 0
	}
	refused = v.Refused + v.Watched
	return v.Passed + refused, refused
}

func (h *hits) write() error {
	data, err := json.Marshal(h.all)
	if err == nil {
		err = renameio.WriteFile(h.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write when rules were last hit: %w", err)
	}
	return nil
}

// fill adds to rules what is known of them.
func (h *hits) fill(rules []Rule) {
	for i, r := range rules {
		if x, ok := h.all[r.Name]; ok && r.Aside == "" {
			rules[i].Since, rules[i].LastHit, rules[i].LastRefused = x.Since, x.Last, x.LastNo
		}
	}
}

// watchHits looks at the rules now and then, and once more at the end.
func (d *daemon) watchHits(ctx context.Context) error {
	logged := false
	for {
		err := d.seeHits(context.WithoutCancel(ctx))
		if err != nil && !logged {
			d.log.Warn("keep when rules were last hit", "err", err)
		}
		logged = err != nil
		if ctx.Err() != nil {
			return nil
		}
		pause(ctx, hitsEvery)
	}
}

func (d *daemon) seeHits(ctx context.Context) error {
	d.snapshot(ctx) // which sees them
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hits.write()
}
