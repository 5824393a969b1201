package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
)

// MendRequest asks to reset the buckets of one client, key, owner, user, tenant
// or source under a rule, or to give some of what was spent back.
type MendRequest struct {
	Rule   string     `json:"rule"`
	Client netip.Addr `json:"client,omitzero"` // http gate
	Key    string     `json:"key_sha256,omitempty"`
	Owner  string     `json:"owner,omitempty"` // all keys of that owner in the key file
	User   string     `json:"user,omitempty"`
	Tenant string     `json:"tenant,omitempty"`
	Source netip.Addr `json:"source,omitzero"` // network gate, a rule per source
	Grant  int64      `json:"grant,omitempty"` // requests to give back; with POST /v1/grant only
	Why    string     `json:"why,omitempty"`
}

// MendReply is what came of it.
type MendReply struct {
	Rule string `json:"rule"`
	Whom string `json:"whom"`
	l7.Mended
}

// mostOwned bounds the keys of one owner that are mended at once.
const mostOwned = 10_000

// mend does what q asks and notes it under what.
func (d *daemon) mend(ctx context.Context, what string, q MendRequest, who Origin) (MendReply, error) {
	if err := checkText("reason", q.Why); err != nil {
		return MendReply{}, err
	}
	for name, text := range map[string]string{"owner": q.Owner, "user": q.User, "tenant": q.Tenant} {
		if err := checkText(name, text); err != nil {
			return MendReply{}, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.policy.find(q.Rule)
	if !ok || r.aside != "" {
		return MendReply{}, notThere("no rule %q in force (see: headgate rule ls)", q.Rule)
	}
	reply := MendReply{Rule: r.Name, Whom: q.whom()}
	var err error
	if r.Gate == config.GateNetwork {
		err = d.mendSource(r.Rule, q, &reply)
	} else {
		err = d.mendRequests(ctx, q, &reply)
	}
	if err != nil {
		return MendReply{}, err
	}
	who.Why = q.Why
	detail := "for " + reply.Whom
	if q.Grant > 0 {
		detail = fmt.Sprintf("%d %s", q.Grant, detail)
	}
	d.note(change{what: what, subject: r.Name, detail: detail, who: who})
	return reply, nil
}

func (d *daemon) mendSource(r config.Rule, q MendRequest, reply *MendReply) error {
	switch {
	case q.Grant > 0:
		return badInput("rule %s is of the network gate, which grants nothing: headgate reset %s --source ADDRESS", r.Name, r.Name)
	case !q.Source.IsValid() || q.Client.IsValid() || q.Key != "" || q.Owner != "" || q.User != "" || q.Tenant != "":
		return badInput("rule %s is of the network gate: name the --source alone", r.Name)
	}
	spent, err := d.network.resetSource(r, q.Source)
	reply.Buckets = 1
	if spent {
		reply.Used = 1
	}
	return err
}

func (n *network) resetSource(r config.Rule, source netip.Addr) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gate == nil {
		return false, refuse("the network gate is off: there is nothing to reset (name network.interfaces)")
	}
	spent, err := n.gate.ResetSource(r, source)
	if err != nil {
		return false, refuse("%v", err)
	}
	return spent, nil
}

func (d *daemon) mendRequests(ctx context.Context, q MendRequest, reply *MendReply) error {
	if q.Source.IsValid() {
		return badInput("rule %s is of the http gate: name a --client, not a --source", q.Rule)
	}
	m := l7.Mend{Rule: q.Rule, Client: q.Client, User: q.User, Tenant: q.Tenant, Grant: q.Grant}
	var err error
	if m.Keys, err = d.keysOf(q); err != nil {
		return err
	}
	reply.Mended, err = d.http.mend(ctx, m)
	return err
}

// keysOf returns the hashes of the keys that q names.
func (d *daemon) keysOf(q MendRequest) ([][config.KeyPart]byte, error) {
	if q.Key != "" {
		raw, err := hex.DecodeString(q.Key)
		if err != nil || len(raw) != 32 {
			return nil, badInput("the hash of the key is not 64 hex digits")
		}
		return [][config.KeyPart]byte{[config.KeyPart]byte(raw)}, nil
	}
	if q.Owner == "" {
		return nil, nil
	}
	keys, n := d.policy.cfg.HTTP.Keys.Owned(q.Owner, mostOwned)
	switch {
	case n == 0:
		return nil, notThere("the key file has no owner %q", q.Owner)
	case n > mostOwned:
		return nil, refuse("owner %s has %d keys, over %d: name one key", q.Owner, n, mostOwned)
	}
	return keys, nil
}

// mend asks the child.
func (h *httpGate) mend(ctx context.Context, m l7.Mend) (l7.Mended, error) {
	h.mu.Lock()
	c := h.child
	h.mu.Unlock()
	if c == nil {
		return l7.Mended{}, refuse("the HTTP gate is not up: its buckets are full when it is")
	}
	ctx, cancel := context.WithTimeout(ctx, setTime)
	defer cancel()
	a, err := c.ask(ctx, order{Do: orderMend, Mend: &m}, nil)
	switch {
	case err != nil:
		return l7.Mended{}, err
	case a.Error != "":
		return l7.Mended{}, badInput("%s", a.Error)
	case a.Mended == nil:
		return l7.Mended{}, errors.New("the HTTP gate did not say what it did")
	}
	return *a.Mended, nil
}

// whom says whose buckets q is about. Of a key it says how its hash begins.
func (q MendRequest) whom() string {
	var parts []string
	for _, a := range []struct {
		what string
		addr netip.Addr
	}{{"client", q.Client}, {"source", q.Source}} {
		if a.addr.IsValid() {
			parts = append(parts, a.what+" "+a.addr.String())
		}
	}
	if q.Key != "" {
		parts = append(parts, "key "+q.Key[:min(8, len(q.Key))]+"…")
	}
	for _, w := range []struct{ what, name string }{{"owner", q.Owner}, {"user", q.User}, {"tenant", q.Tenant}} {
		if w.name != "" {
			parts = append(parts, w.what+" "+w.name)
		}
	}
	if len(parts) == 0 {
		return "all together"
	}
	return strings.Join(parts, ", ")
}

func (d *daemon) handleMends(m *http.ServeMux) {
	m.Handle("POST /v1/reset", answerWith(d.log, func(r *http.Request) (any, error) {
		var q MendRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		if q.Grant != 0 {
			return nil, badInput("a reset gives all back: leave grant out, or ask for /v1/grant")
		}
		return d.mend(r.Context(), "reset", q, who(r, d.now()))
	}))
	m.Handle("POST /v1/grant", answerWith(d.log, func(r *http.Request) (any, error) {
		var q MendRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		if q.Grant < 1 {
			return nil, badInput("grant %d: give back at least 1", q.Grant)
		}
		return d.mend(r.Context(), "grant", q, who(r, d.now()))
	}))
}
