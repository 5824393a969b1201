package l7

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/heavy"
	"github.com/headgate/headgate/limit"
)

const (
	// passedEach is how many requests that pass one stands for among the
	// heaviest, on average. Those that are refused are all counted.
	passedEach = 16
	// heaviest bounds the senders that are kept in each of some windows of time.
	heaviest = 512
	// mostTold bounds those that the gate tells of.
	mostTold = 100
)

// heavyKey is who asks: a client, an API key or a user, and the rule that refused.
type heavyKey struct {
	client netip.Prefix
	key    [4]byte // how its hash begins
	owner  string
	user   string
	rule   string
}

// heavySenders is safe for concurrent use.
type heavySenders struct {
	mu    sync.Mutex
	table *heavy.Table[heavyKey]
}

// Heavy is one of those who asked most in the last minute.
type Heavy struct {
	Client netip.Prefix `json:"client,omitzero"` // IPv6 by the prefix that buckets go by; or
	Key    string       `json:"key,omitempty"`   // how the API key's SHA-256 begins; or
	User   string       `json:"user,omitempty"`
	Owner  string       `json:"owner,omitempty"` // of the key

	Passed  uint64 `json:"passed"` // estimated from a sample
	Refused uint64 `json:"refused"`
	Rule    string `json:"rule,omitempty"` // that refused most of it; "": a block did
}

// Heaviest returns who asked most, and who was refused most, over how long.
func (g *Gate) Heaviest() ([]Heavy, time.Duration) {
	g.heavy.mu.Lock()
	all, span := g.heavy.table.Look(g.Clock(), heavy.Window)
	g.heavy.mu.Unlock()
	who := map[heavyKey]*Heavy{}
	worst := map[heavyKey]uint64{}
	for _, s := range all {
		k := s.Key
		k.rule = ""
		h := who[k]
		if h == nil {
			h = &Heavy{Client: k.client, User: k.user, Owner: k.owner}
			if !h.Client.IsValid() && h.User == "" {
				h.Key = hex.EncodeToString(k.key[:])
			}
			who[k] = h
		}
		h.Passed += s.Passed
		if h.Refused += s.Refused; s.Refused > worst[k] {
			worst[k], h.Rule = s.Refused, s.Key.rule
		}
	}
	out := make([]Heavy, 0, len(who))
	for _, h := range who {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Passed, a.Passed))
	})
	if len(out) > mostTold { // half of those refused most, and half of those that asked most
		rest := out[mostTold/2:]
		slices.SortFunc(rest, func(a, b Heavy) int { return cmp.Compare(b.Passed+b.Refused, a.Passed+a.Refused) })
		out = out[:mostTold]
	}
	return out, span
}

// weigh counts a request among the heaviest.
func (g *Gate) weigh(p *policy, v verdict, a *asker, d *decision, now limit.Ticks) {
	c, rule := heavy.Counts{Refused: 1}, ""
	switch v {
	case refused:
		rule = d.refuser()
	case blocked:
	case pass, free:
		if rand.N(passedEach) != 0 {
			return
		}
		c = heavy.Counts{Passed: passedEach}
	default:
		return
	}
	at := limit.ToDuration(now)
	bits := 32
	if a.client.Is6() {
		bits = p.clientBits
	}
	client, _ := a.client.Prefix(bits)
	g.heavy.mu.Lock()
	defer g.heavy.mu.Unlock()
	g.heavy.table.Add(at, heavyKey{client: client, rule: rule}, c)
	if a.identity == verified || a.identity == claimed {
		g.heavy.table.Add(at, heavyKey{key: [4]byte(a.key[:4]), owner: a.owner, rule: rule}, c)
	}
	if a.user != "" {
		g.heavy.table.Add(at, heavyKey{user: a.user, rule: rule}, c)
	}
}

// refuser is the rule that refused.
func (d *decision) refuser() string {
	for i := range d.charges {
		if c := &d.charges[i]; c.Refused && !c.Watch {
			return d.rules[i].name
		}
	}
	return ""
}
