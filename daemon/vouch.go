package daemon

import (
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// Vouch is one source that unknown-source caps do not concern, until End.
type Vouch struct {
	Source netip.Addr `json:"source"` // IPv6: the first address of its /64
	End    time.Time  `json:"end"`
}

// Vouches is the answer to GET /v1/vouches.
type Vouches struct {
	Vouches []Vouch `json:"vouches"` // by source
}

// VouchRequest asks for a vouch.
type VouchRequest struct {
	Source netip.Addr `json:"source"`
	For    int64      `json:"for"` // seconds, at least 1
}

// longestVouch keeps a vouch from becoming an allow by another name.
const longestVouch = 30 * 24 * time.Hour

func (d *daemon) handleVouches(m *http.ServeMux) {
	m.Handle("GET /v1/vouches", answerWith(d.log, func(*http.Request) (any, error) { return d.network.vouches() }))
	m.Handle("POST /v1/vouches", answerWith(d.log, func(r *http.Request) (any, error) {
		var q VouchRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		v, err := d.network.vouch(q)
		if err == nil {
			d.log.Info("vouched", "by", who(r, d.now()).By, "source", v.Source, "end", v.End)
		}
		return v, err
	}))
	m.Handle("DELETE /v1/vouches", answerWith(d.log, func(r *http.Request) (any, error) {
		source, err := netip.ParseAddr(r.URL.Query().Get("source"))
		if err != nil {
			return nil, badInput("source: %v", err)
		}
		return Vouch{Source: source}, d.network.unvouch(source)
	}))
}

func (n *network) vouch(q VouchRequest) (Vouch, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := Vouch{Source: q.Source.Unmap().WithZone("")}
	span := time.Duration(q.For) * time.Second
	switch {
	case !q.Source.IsValid():
		return v, badInput("say whom to vouch for: an address")
	case q.For < 1 || span > longestVouch:
		return v, badInput("a vouch of %d s is not between 1 s and 30 days", q.For)
	case n.gate == nil:
		return v, refuse("the network gate is off: there is nothing to vouch for (name network.interfaces)")
	}
	v.End = time.Now().Add(span)
	return v, n.gate.Vouch(v.Source, v.End)
}

func (n *network) unvouch(source netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return refuse("the network gate is off")
	}
	return n.gate.Unvouch(source)
}

func (n *network) vouches() (Vouches, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := Vouches{Vouches: []Vouch{}}
	if n.gate == nil {
		return v, nil
	}
	all, err := n.gate.Vouches()
	for source, end := range all {
		v.Vouches = append(v.Vouches, Vouch{source, end.Round(0).UTC()})
	}
	slices.SortFunc(v.Vouches, func(a, b Vouch) int { return a.Source.Compare(b.Source) })
	return v, err
}
