package l7

import (
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// Kinds of bucket under one rule.
const (
	bucketOwn  = 'i' // of the identity that the rule counts by
	bucketLost = 'l' // of those who lack it
	setHeld    = 'h' // which keys a client holds
)

// whom says what of a request a bucket key is made of, beside the rule. Rules
// share the few that there are: each is hashed once for all rules of a request.
type whom struct {
	kind byte
	per  []config.Per // sorted
}

// Positions in policy.whoms that are always those.
const (
	ownClient = iota
	lostClient
)

// mostWhoms is more than there can be: each set of four identities and the
// client, and of the client alone for those who lack one.
const mostWhoms = 64

func firstWhoms() []whom {
	client := []config.Per{config.PerClient}
	return []whom{ownClient: {bucketOwn, client}, lostClient: {bucketLost, client}}
}

// whom returns the position of a whom in p.whoms, where it is put if it was not
// there.
func (p *policy) whom(kind byte, per []config.Per) int {
	i := slices.IndexFunc(p.whoms, func(w whom) bool { return w.kind == kind && slices.Equal(w.per, per) })
	if i < 0 {
		i = len(p.whoms)
		p.whoms = append(p.whoms, whom{kind, per})
	}
	return i
}

// key returns the key that a has as w. text is room for what is hashed.
func (w *whom) key(store *limit.Store, a *asker, text []byte) limit.Key {
	return store.Key(a.appendParts(append(text, w.kind), w.per))
}

// whomKey is whom.key, made once a request.
func (d *decision) whomKey(p *policy, i int, a *asker) limit.Key {
	if d.hashed&(1<<i) == 0 {
		d.whoms[i] = p.whoms[i].key(p.store, a, d.text[:0])
		d.hashed |= 1 << i
	}
	return d.whoms[i]
}

// begin readies d for a, whose keys by the address alone are known where the
// connection's peer is the client.
func (d *decision) begin(a *asker) {
	d.hashed = 0
	if a.origin != nil && a.client == a.origin.peer {
		d.whoms[ownClient], d.whoms[lostClient] = a.origin.own, a.origin.lost
		d.hashed = 1<<ownClient | 1<<lostClient
	}
}
