package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Scope says where a bucket is counted.
type Scope string

const (
	ScopeHost  Scope = "host"  // on this host
	ScopeFleet Scope = "fleet" // by all hosts, each with a credit line
	ScopeExact Scope = "exact" // by all hosts, with a call to Redis for each decision
)

// Outage says what a rule does while Redis is out of reach.
type Outage string

const (
	OutageShare  Outage = "share"  // each host goes on with its last share
	OutageOpen   Outage = "open"   // nothing is refused
	OutageClosed Outage = "closed" // everything is, with 503
)

var (
	scopes  = []Scope{ScopeHost, ScopeFleet, ScopeExact}
	outages = []Outage{OutageShare, OutageOpen, OutageClosed}
)

// Fleet is what joins this host to others.
type Fleet struct {
	Name       string
	SecretFile string // as written
	Secret     []byte // what it holds
	Hosts      int    // expected, until Redis says how many there are; 1 to 10000, default 1
	Redis      Redis
}

// Redis is where the fleet counts.
type Redis struct {
	Addresses    []string // host:port
	Sentinel     string   // name of the primary that sentinels at Addresses watch
	Cluster      bool
	User         string
	PasswordFile string // as written
	Password     string // what it holds, without the end of the line
	TLS          *RedisTLS
}

// RedisTLS is how connections to Redis are encrypted.
type RedisTLS struct {
	CAFile, CertFile, KeyFile string // as written; CAFile empty: the system's
	ServerName                string // empty: the address's host
	CA, Cert, Key             string // what they hold, in PEM
}

const (
	leastSecret  = 16
	largestText  = 64 << 10 // of a file with a secret
	mostExpected = 10_000
	longestFleet = 40
)

// fleet reads `fleet`; nil if there is none.
func (o *object) fleet() *Fleet {
	f := o.child("fleet", fleetLevel)
	if f == nil {
		return nil
	}
	out := &Fleet{Hosts: f.expected()}
	if f.need("name", "all hosts of one fleet have the same, such as edge") {
		out.Name = f.text("name", longestFleet)
		const set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"
		if strings.Trim(out.Name, set) != "" {
			f.errorf(f.at("name"), "name %s: use letters, digits, `.` and `-`", quote(out.Name))
		}
	}
	if f.need("secret_file", "hosts with the same secret share their counts: head -c 32 /dev/urandom | base64 > fleet.key, the same on all") {
		out.SecretFile = f.text("secret_file", 4096)
		out.Secret = f.secret(out.SecretFile)
	}
	if f.need("redis", "name where the fleet counts, such as {addresses: [\"redis:6379\"]}") {
		if r := f.child("redis", redisLevel); r != nil {
			out.Redis = r.redis()
		}
	}
	return out
}

func (o *object) expected() int {
	w, _ := o.word("hosts")
	n, err := parseWhole(w.text)
	if w.text != "" && (err != nil || n < 1 || n > mostExpected) {
		o.errorf(w.node, "hosts %s: write a whole number from 1 to %d", quote(w.text), mostExpected)
	}
	return int(n)
}

// secret reads the fleet's secret: what the file holds, in base64 where it is
// that.
func (o *object) secret(file string) []byte {
	text := o.contents("secret_file", file)
	if raw, err := base64.StdEncoding.DecodeString(text); err == nil && len(raw) >= leastSecret {
		return raw
	}
	if text != "" && len(text) < leastSecret {
		o.errorf(o.at("secret_file"), "the secret in %s has %d bytes: it needs at least %d (head -c 32 /dev/urandom | base64)", file, len(text), leastSecret)
	}
	return []byte(text)
}

// contents reads a file that a key names, without the line's end.
func (o *object) contents(key, file string) string {
	if file == "" {
		return ""
	}
	data, err := o.read(beside(o.file, file), largestText)
	if err != nil {
		o.errorf(o.at(key), "read %s: %s", key, err)
		return ""
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		o.errorf(o.at(key), "%s is empty", file)
	}
	return text
}

func (o *object) redis() Redis {
	r := Redis{User: o.text("user", 256), Cluster: o.flag("cluster"), Sentinel: o.text("sentinel", 256), PasswordFile: o.text("password_file", 4096)}
	if o.need("addresses", "name at least one host:port, such as [\"redis:6379\"]") {
		for _, w := range o.words("addresses") {
			if err := checkAddress(w.text); err != nil || strings.HasPrefix(w.text, ":") {
				o.errorf(w.node, "address %s: write host:port, such as redis:6379", quote(w.text))
			}
			r.Addresses = append(r.Addresses, w.text)
		}
		if len(r.Addresses) == 0 {
			o.errorf(o.at("addresses"), "`addresses` is empty: name at least one host:port")
		}
	}
	if r.Sentinel != "" && r.Cluster {
		o.errorf(o.keys["sentinel"], "Redis is watched by sentinels or is a cluster: remove one of both")
	}
	r.Password = o.contents("password_file", r.PasswordFile)
	if t := o.child("tls", redisTLSLevel); t != nil {
		r.TLS = t.redisTLS()
	}
	return r
}

func (o *object) redisTLS() *RedisTLS {
	t := &RedisTLS{CAFile: o.text("ca_file", 4096), CertFile: o.text("cert_file", 4096), KeyFile: o.text("key_file", 4096), ServerName: o.text("server_name", 253)}
	t.CA, t.Cert, t.Key = o.contents("ca_file", t.CAFile), o.contents("cert_file", t.CertFile), o.contents("key_file", t.KeyFile)
	if (t.CertFile == "") != (t.KeyFile == "") {
		o.errorf(o.node, "`cert_file` and `key_file` belong together: name both, or none")
	} else if len(t.Cert) > 0 && len(t.Key) > 0 {
		if _, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key)); err != nil {
			o.errorf(o.at("cert_file"), "%s with %s: %s", t.CertFile, t.KeyFile, err)
		}
	}
	if len(t.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM([]byte(t.CA)) {
		o.errorf(o.at("ca_file"), "%s holds no certificate in PEM", t.CAFile)
	}
	return t
}

// Client returns t as a client's configuration; nil for none.
func (t *RedisTLS) Client() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if len(t.CA) > 0 {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(t.CA))
	}
	if len(t.Cert) > 0 {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, fmt.Errorf("certificate for Redis: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Same reports whether f and g are the same fleet, found in the same way; the
// password, and how many hosts are expected, may be others.
func (f *Fleet) Same(g *Fleet) bool {
	if f == nil || g == nil {
		return f == g
	}
	a, b := *f, *g
	a.Redis.Password, b.Redis.Password = "", ""
	a.Hosts, b.Hosts = 0, 0
	return reflect.DeepEqual(a, b)
}

// Files returns the names of all files that f was read from, as written.
func (f *Fleet) Files() []string {
	if f == nil {
		return nil
	}
	names := []string{f.SecretFile, f.Redis.PasswordFile}
	if t := f.Redis.TLS; t != nil {
		names = append(names, t.CAFile, t.CertFile, t.KeyFile)
	}
	return names
}

// scope reads where a rule's buckets are counted, and what happens without
// Redis. What is left out is decided where it is known whether there is a fleet.
func (rr *ruleReader) scope() {
	if w, ok := rr.word("scope"); ok {
		s := Scope(w.text)
		switch {
		case !slices.Contains(scopes, s):
			rr.errorf(w.node, "%s", oneOf("scope", w.text, texts(scopes)))
		case rr.rule.Gate == GateNetwork && s != ScopeHost:
			rr.errorf(w.node, "this version counts rules of the network gate on each host: remove `scope`")
		case s == ScopeFleet && (rr.rule.Algorithm != TokenBucket && rr.rule.Algorithm != Quota || rr.rule.CountRefused):
			rr.errorf(w.node, "only a `rate` or `quota` that counts no refused requests can have `scope: fleet`: use `scope: exact`")
		}
		rr.rule.Scope = s
	}
	if w, ok := rr.word("outage"); ok {
		if !slices.Contains(outages, Outage(w.text)) {
			rr.errorf(w.node, "%s", oneOf("outage", w.text, texts(outages)))
		}
		if rr.rule.Gate == GateNetwork || rr.rule.Scope == ScopeHost {
			rr.errorf(w.node, "a rule that is counted on this host needs no `outage`: remove it")
		}
		rr.rule.Outage = Outage(w.text)
	}
}

// ScopeIn returns where r is counted in a fleet: as it says, or by its kind.
// Without a fleet it is on this host.
func (r *Rule) ScopeIn(f *Fleet) Scope {
	switch {
	case f == nil || r.Gate == GateNetwork:
		return ScopeHost
	case r.Scope != "":
		return r.Scope
	case r.Algorithm == TokenBucket || r.Algorithm == Quota:
		if r.CountRefused {
			return ScopeExact
		}
		return ScopeFleet
	}
	return ScopeExact
}

// checkScope says what is wrong with a rule's scope where there is no fleet.
func (c *Config) checkScope(r Rule) string {
	if c.Fleet == nil && r.Scope != "" && r.Scope != ScopeHost {
		return fmt.Sprintf("`scope: %s` needs a fleet: add `fleet`, or remove the scope", r.Scope)
	}
	if c.Fleet == nil && r.Outage != "" {
		return "`outage` needs a fleet: add `fleet`, or remove it"
	}
	return ""
}
