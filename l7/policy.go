package l7

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gaissmai/bart"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/limit"
)

// Policy is all that the gate enforces. It is plain data that survives JSON:
// another process sends it.
type Policy struct {
	HTTP  config.HTTP
	Rules []config.Rule // those of the network gate are passed over
	Allow []netip.Prefix
	Block []netip.Prefix // Allow wins

	// What the key file holds is in HTTP.Keys, which JSON leaves out, or with
	// SameKeys what the policy in force has: a million keys need not be sent for
	// each change of a rule.
	SameKeys bool

	Fleet *config.Fleet // nil: this host is alone

	Host   string // this host's name, as request ids tell it
	Secret []byte // that request ids are sealed with; nil: one that ends with the gate
}

// defaultClientBits is the prefix that makes one IPv6 client: a household or
// server commonly holds a whole /64.
const defaultClientBits = 64

// policy is a Policy made ready. It is never changed.
type policy struct {
	edition     *edition
	store       *limit.Store // of the buckets
	rules       []rule
	index       *index // of rules
	whoms       []whom // that rules count by
	proxies     *bart.Lite
	allow       *bart.Lite
	block       *bart.Lite
	exempt      []exemption
	forwarded   bool // Forwarded names the client, not X-Forwarded-For
	places      keyPlaces
	keyFile     bool
	keys        *config.Keyring
	userHeader  string  // that a declared proxy sets; empty: none
	tokens      *tokens // nil: users have none
	clientBits  int
	connections int  // that one client may hold
	byHost      bool // a rule looks at the host
	preflight   rule

	certificates certificates
	wall         func() time.Time // by which overrides end
	answers      answers
	blur         blur
	undeclared   *undeclared       // nil: nobody counts them
	access       *config.AccessLog // nil: nothing is logged
	fleet        *config.Fleet     // nil: there is none
	member       *fleet.Member     // nil: this host is alone
	seal         seal
}

// rule is a config.Rule made ready.
type rule struct {
	name  string
	id    limit.Key // of name, per, algorithm and unit: it finds the buckets again
	match matcher
	per   []config.Per // sorted
	lacks bool         // a request may lack an identity of per
	asks  bool         // the user decides which bucket it is, its figures, or whether the rule matches
	limit limit.Limit
	whom  int          // per, as policy.whoms has it
	lost  []config.Per // of requests that lack an identity of per
	loser int          // lost, as policy.whoms has it
	spare limit.Limit  // figures of those

	anonymous bool // the rule has figures of its own for them
	overrides []override

	watch  bool
	counts *counts // nil: not reported

	account    *limit.Account // of all its buckets
	memory     int64          // that they may take; 0: no bound of their own
	dimensions string         // that partition the quota, as parameters of RateLimit-Partition
}

type exemption struct {
	path pattern
	from *bart.Lite // nil: from anywhere
}

// compile makes p ready, with buckets in store and counters from counted. It
// names all errors.
func (p Policy) compile(store *limit.Store, counted func(name string) *counts) (*policy, error) {
	return p.compileFor(nil, store, counted)
}

// compileFor is compile on a host that is a member of p's fleet, or nil.
func (p Policy) compileFor(member *fleet.Member, store *limit.Store, counted func(name string) *counts) (*policy, error) {
	c := &policy{
		edition: new(edition), store: store, whoms: firstWhoms(), fleet: p.Fleet, member: member,
		proxies: table(p.HTTP.Proxies), allow: table(p.Allow), block: table(p.Block),
		forwarded:  p.HTTP.ClientFrom == config.FromForwarded,
		places:     keyPlaces{http.CanonicalHeaderKey(p.HTTP.KeyHeader), p.HTTP.KeyBearer, p.HTTP.KeyQuery},
		keyFile:    p.HTTP.KeyFile != "",
		keys:       p.HTTP.Keys,
		access:     p.HTTP.AccessLog,
		userHeader: http.CanonicalHeaderKey(p.HTTP.Users.Header), clientBits: p.HTTP.ClientBits,
		connections: cmp.Or(p.HTTP.Connections, defaultConnections),
	}
	var errs []error
	var err error
	if c.tokens, err = newTokens(p.HTTP.Users); err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.clientBits == 0:
		c.clientBits = defaultClientBits
	case c.clientBits < 48 || c.clientBits > 128:
		errs = append(errs, fmt.Errorf("client prefix /%d: give one from 48 to 128", c.clientBits))
	}
	for _, e := range p.HTTP.Exempt {
		path, err := newPattern(e.Path)
		if err != nil {
			errs = append(errs, fmt.Errorf("exempt: %w", err))
		}
		c.exempt = append(c.exempt, exemption{path: path, from: table(e.From)})
	}
	certs, err := newCertificates(p.HTTP.Certificates)
	if err != nil {
		errs = append(errs, err)
	}
	c.certificates = certs
	errs = append(errs, c.compileRules(p.Rules)...)
	if c.answers, err = newAnswers(p.HTTP.Answers); err != nil {
		errs = append(errs, fmt.Errorf("body of refusals: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.index, err = newIndex(c.rules); err != nil {
		return nil, err
	}
	c.preflight = newPreflight(store)
	for i := range c.rules {
		r := &c.rules[i]
		r.counts = counted(r.name)
		r.account = store.Account(r.id, r.limit, r.memory)
	}
	return c, nil
}

// accounts returns those of all rules in force.
func (c *policy) accounts() []*limit.Account {
	all := []*limit.Account{c.preflight.account}
	for i := range c.rules {
		all = append(all, c.rules[i].account)
	}
	return all
}

func (c *policy) compileRules(rules []config.Rule) (errs []error) {
	seen := map[string]bool{}
	for _, r := range rules {
		if r.Gate != config.GateHTTP {
			continue
		}
		if seen[r.Name] {
			errs = append(errs, fmt.Errorf("rule %s: the name is used twice: rename one", r.Name))
		}
		seen[r.Name] = true
		ready, err := c.newRule(r)
		if err == nil {
			err = c.knows(ready.per)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %s: %w", r.Name, err))
			continue
		}
		ready.whom, ready.loser = c.whom(bucketOwn, ready.per), c.whom(bucketLost, ready.lost)
		c.rules = append(c.rules, ready)
		c.byHost = c.byHost || len(ready.match.hosts) > 0
	}
	return errs
}

// knows says which identity of per no request can have.
func (c *policy) knows(per []config.Per) error {
	for _, p := range per {
		switch {
		case p == config.PerKey && !c.places.any():
			return errors.New("per key needs a header that holds it: set http.identities.key.header")
		case p == config.PerTenant && !c.keyFile:
			return errors.New("per tenant needs a key file, which says whose tenant a key is: set http.identities.key.file")
		case p == config.PerUser && c.userHeader == "" && c.tokens == nil:
			return errors.New("per user needs to know who that is: set http.identities.user")
		}
	}
	return nil
}

// isIdentity reports whether p is something that a request may lack.
func isIdentity(p config.Per) bool {
	return p == config.PerUser || p == config.PerKey || p == config.PerTenant
}

func (c *policy) newRule(r config.Rule) (ready rule, err error) {
	if r.Rate.Unit != config.Count && r.Rate.Unit != "" {
		return rule{}, fmt.Errorf("the HTTP gate counts requests, not %s: write the rate as a number per time", r.Rate.Unit)
	}
	ready = rule{name: r.Name, watch: r.Mode == config.Watch, memory: r.Memory}
	if ready.match, err = newMatcher(r.Match); err != nil {
		return rule{}, err
	}
	if ready.per, err = newPer(r.Per); err != nil {
		return rule{}, err
	}
	if ready.limit, err = c.newLimit(&r, r.Rate, r.Burst); err != nil {
		return rule{}, err
	}
	ready.lacks = slices.ContainsFunc(ready.per, isIdentity)
	if ready.overrides, err = c.newOverrides(r); err != nil {
		return rule{}, err
	}
	ready.asks = slices.Contains(ready.per, config.PerUser) || ready.match.asksUser() ||
		slices.ContainsFunc(ready.overrides, override.asksUser)
	ready.lost, ready.spare = []config.Per{config.PerClient}, ready.limit
	ready.anonymous = r.Anonymous != nil
	if a := r.Anonymous; a != nil {
		if ready.lost, err = newPer(a.Per); err == nil {
			ready.spare, err = c.newLimit(&r, a.Rate, a.Burst)
		}
		if err == nil && slices.ContainsFunc(ready.lost, isIdentity) {
			err = errors.New("who lacks an identity is not counted by one: use per: client")
		}
		if err != nil {
			return rule{}, fmt.Errorf("anonymous: %w", err)
		}
	}
	ready.dimensions = dimensionsOf(ready.per, ready.match.methods)
	ready.id = ready.identify(c.store, r.Algorithm)
	return ready, nil
}

// identify returns the key of what makes a rule the same one after a reload.
// Requests are the only unit so far.
func (r *rule) identify(store *limit.Store, a config.Algorithm) limit.Key {
	id := limit.AppendPart(nil, 'r', []byte(r.name))
	for _, per := range r.per {
		id = limit.AppendPart(id, 'p', []byte(per))
	}
	id = limit.AppendPart(id, 'a', []byte(a))
	return store.Key(limit.AppendPart(id, 'u', []byte(config.Count)))
}

func newPer(per []config.Per) ([]config.Per, error) {
	if len(per) == 0 {
		return nil, errors.New("per is missing: use client, user, key, tenant or total")
	}
	for _, p := range per {
		if p != config.PerClient && p != config.PerTotal && !isIdentity(p) {
			return nil, fmt.Errorf("per %s is not known to the HTTP gate: use client, user, key, tenant or total", p)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(per))), nil
}

// newPreflight returns the built-in rule for CORS preflights: a browser sends
// them on its own, so no user's rule is charged for them. Its identity cannot
// be that of a user's rule, whose first part is of another kind.
func newPreflight(store *limit.Store) rule {
	l, err := limit.NewRate(100, time.Second, 100)
	if err != nil {
		panic(err) // constant figures
	}
	per := []config.Per{config.PerClient}
	id := store.Key(limit.AppendPart(nil, 'b', []byte("cors-preflight")))
	return rule{
		name: "cors-preflight", id: id, per: per, whom: ownClient, limit: l, lost: per, loser: lostClient, spare: l,
		account: store.Account(id, l, 0),
	}
}

// table makes a set of prefixes, under the addresses' canonical spelling; nil
// if there are none.
func table(prefixes []netip.Prefix) *bart.Lite {
	if len(prefixes) == 0 {
		return nil
	}
	t := new(bart.Lite)
	for _, p := range prefixes {
		t.Insert(listed(p))
	}
	return t
}

func contains(t *bart.Lite, a netip.Addr) bool { return t != nil && t.Contains(a) }

// exempts reports whether no rule applies to a request: every reading of its
// path must be exempt, lest an odd spelling free another path.
func (c *policy) exempts(client netip.Addr, paths []string) bool {
	for i := range c.exempt {
		e := &c.exempt[i]
		if e.from != nil && !e.from.Contains(client) {
			continue
		}
		if !slices.ContainsFunc(paths, func(p string) bool { return !e.path.match(p) }) {
			return true
		}
	}
	return false
}

// isPreflight reports whether r is a CORS preflight (Fetch, 3.2.2).
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// pathOf returns the path of r as it was sent.
func pathOf(r *http.Request) string {
	path := r.RequestURI
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	if path != "" && path[0] == '/' || path == "*" {
		return path
	}
	if path = r.URL.EscapedPath(); path == "" { // absolute form, RFC 9112, 3.2.2
		return "/"
	}
	return path
}
