// Package config turns one YAML file into a checked Config.
//
// The grammar is that of docs/reference.yaml. Parsing is strict: unknown and
// repeated keys, bad units and impossible figures are errors that carry file,
// line and column, all of them reported at once, and a file with an error
// yields no Config at all.
package config

import (
	"net/netip"
	"time"
)

// Version is the version of the grammar that this package reads.
const Version = 1

// Mode says whether a rule refuses or only counts what it would refuse.
type Mode string

const (
	Enforce Mode = "enforce"
	Watch   Mode = "watch"
)

// Gate is where a rule is applied.
type Gate string

const (
	GateNetwork Gate = "network"
	GateHTTP    Gate = "http"
)

// AttachMode says which kind of XDP attachment is wanted.
type AttachMode string

const (
	AttachAuto    AttachMode = "auto"    // native, else generic with a warning
	AttachNative  AttachMode = "native"  // native or an error
	AttachGeneric AttachMode = "generic" // generic only
)

// Config is a whole, checked configuration. It is never changed after
// Load or Parse returned it.
type Config struct {
	Version int
	Mode    Mode // Watch turns every rule to watch; rules already carry the result
	Network Network
	Allow   []netip.Prefix
	Block   []netip.Prefix
	HTTP    HTTP
	Rules   []Rule // both gates, in the order of the file
	Lists   []List // in the order of the file
	Admin   Admin
	State   State
	Fleet   *Fleet // nil: this host is alone

	AllowLists []string // names out of Lists that `allow` holds beside its prefixes
	BlockLists []string // the same of `block`
}

// Network is the network gate's part.
type Network struct {
	Interfaces []string // names, patterns and AutoInterfaces; empty: the network gate is off
	AttachMode AttachMode
	Management Management
	Slots      uint32 // places in the bucket table, a power of two, 4096 to 1<<27
	// Leash is how long the data path filters without a daemon; then it passes
	// everything. 0: for ever.
	Leash  time.Duration
	Repair bool // attach and pin again what others took away; default true
}

// Management names the traffic that passes before everything else: source and
// destination port must both match.
type Management struct {
	Sources []netip.Prefix
	Ports   []Port
}

// Port is a destination port of one protocol.
type Port struct {
	Protocol string // tcp or udp
	Number   uint16
}

// HTTP is the HTTP gate's part.
type HTTP struct {
	Listeners  []Listener     // empty: the HTTP gate is off
	Proxies    []netip.Prefix // peers that may name the client
	ClientFrom ClientFrom     // the header in which they do so
	KeyHeader  string         // canonical header name of the API key; empty: in none
	KeyBearer  bool           // the API key may be the bearer token of Authorization
	KeyQuery   string         // parameter of the query that may hold the API key; empty: none
	KeyFile    string         // path as written; empty: keys are only claimed
	Keys       *Keyring       `json:"-"` // what KeyFile holds
	Users      Users
	Exempt     []Exempt
	User       string // system user that the HTTP gate's process runs as
	ClientBits int    // IPv6 prefix length that makes one client, 48 to 128, default 64
	Memory     int64  // bytes that the buckets of all rules take at most; default 256 MiB
	Answers    Answers

	AccessLog *AccessLog // nil: requests are not logged

	Connections int // that one client may hold open at a time, 1 to 1000000, default 256

	Certificates []Certificate // what the listeners' TLS names, each pair once
}

// Listener is one front door.
type Listener struct {
	Address  string  // host:port, host may be empty
	Door     string  // proxy
	Upstream string  // http, https or h2c URL without a path
	Dialect  Dialect // "": that of HTTP.Answers

	ProxyProtocol bool // connections begin with a PROXY line or header, from declared proxies only
	TLS           *TLS // nil: in the clear

	AnswerTimeout time.Duration // for the begin of an upstream's answer, 1s to 24h; default 60s

	Upstreams []Upstream // in the place of Upstream; the first that matches, and none is 404
}

// Key is one line of the key file: an API key is known by its hash alone.
type Key struct {
	SHA256 [32]byte
	Owner  string
	Tenant string // may be empty
	Plan   string // may be empty
}

// List is a named list of prefixes, from a file or an https address.
type List struct {
	Name     string        // as a rule's name
	File     string        // path, relative to the config's folder; or
	URL      string        // https only
	Interval time.Duration // how often the URL is asked; at least a minute, default 1 h
	SHA256   string        // of the content in hex; empty: not checked
}

// Exempt names requests that no rule applies to: the path on its normal form,
// from one of the prefixes.
type Exempt struct {
	Path string
	From []netip.Prefix
}

// Admin is where the daemon is steered and watched.
type Admin struct {
	Socket string // path of the control socket
	Listen string // host:port of metrics and health; empty: none
}

// State is where the daemon keeps what must outlive it.
type State struct {
	Dir  string // rules, blocks and allows added from the command line
	Pins string // folder in a bpffs
}

// Per names one part of a bucket key.
type Per string

const (
	PerSource      Per = "source"      // network: the packet's source, by Rule.SourceBits4 and 6
	PerDestination Per = "destination" // network: the packet's destination address
	PerClient      Per = "client"      // HTTP: the client's address, IPv6 by /64
	PerUser        Per = "user"        // HTTP: the verified user
	PerKey         Per = "key"         // HTTP: the API key
	PerTenant      Per = "tenant"      // HTTP: the tenant of the API key
	PerTotal       Per = "total"       // one bucket for all
)

// Algorithm is how a rule counts.
type Algorithm string

const (
	TokenBucket    Algorithm = "token-bucket"
	SlidingLog     Algorithm = "sliding-log"
	SlidingCounter Algorithm = "sliding-counter"
	FixedWindow    Algorithm = "fixed-window"
	Quota          Algorithm = "quota"
)

// Unit is what a rate counts.
type Unit string

const (
	Count Unit = "count" // packets or requests
	Bytes Unit = "bytes"
)

// Rate is Amount per Interval. Bit rates are kept as bytes: a rate in bits
// that is no whole number of bytes has its interval scaled instead.
type Rate struct {
	Amount   int64 // at least 1
	Interval time.Duration
	Unit     Unit
}

// Rule is one rule, checked and with every default filled in.
type Rule struct {
	Name      string // 1 to 63 bytes of [a-z0-9._-], starting with a letter or digit
	Gate      Gate
	Match     Match
	Per       []Per // at least one, no two the same
	Algorithm Algorithm
	Rate      Rate  // token-bucket; for a limit, Amount per Interval is the limit and its window; for a quota Calendar has the period
	Burst     int64 // token-bucket: how much at once, in Rate.Unit; at least 1
	Mode      Mode
	Anonymous *Anonymous // HTTP: figures of requests that lack the identity in Per; nil: per client, same figures
	Text      string     // the rule as one line of YAML, canonical

	// HTTP gate.
	Calendar     *Calendar // of a quota; else nil
	CountRefused bool      // what is refused, by whichever rule, is charged too
	Soft         int       // percent above the limit that pass and are marked; 0: none
	Memory       int64     // most bytes that its buckets take; 0: as many as HTTP.Memory leaves
	Scope        Scope     // where its buckets are counted; empty: see ScopeIn
	Outage       Outage    // what it does while Redis is out of reach; empty: OutageShare

	// Network gate.
	SourceBits4 uint8      // per source: the prefix that makes one key; 0 means 32
	SourceBits6 uint8      // 0 means 64; 1 to 64, or 128
	Overrides   []Override // of both gates: the first that fits replaces the figures
	Unknown     *Rate      // what all sources that have no bucket yet, and are not vouched for, take together
	Then        *Then
}

// Then is what happens to a source that is refused again and again.
type Then struct {
	Block time.Duration // how long it is blocked
	After Rate          // by how many refusals
}

// Addresses are prefixes, written out or in named lists.
type Addresses struct {
	Prefixes []netip.Prefix
	Lists    []string
}

// Anonymous gives requests without the identity their own figures.
type Anonymous struct {
	Per   []Per
	Rate  Rate
	Burst int64
}

// Match says what a rule applies to. Empty fields match everything; all that
// are given must match.
type Match struct {
	// Network gate.
	Protocol string      // tcp, udp, icmp, icmpv6, sctp, gre, esp, ah or a number as text; empty: all traffic
	Ports    []PortRange // destination ports; only with tcp or udp

	From        Addresses   // sources; empty: all
	To          Addresses   // destinations; empty: all
	Except      Addresses   // sources that the rule does not apply to
	SourcePorts []PortRange // only with tcp or udp
	Flags       *TCPFlags   // only with tcp
	ICMPTypes   []uint8     // only with icmp or icmpv6
	VLANs       []uint16    // ids of the outermost tag, 0 to 4094; 0 is a priority tag
	Interfaces  []string    // names that network.interfaces stands for

	// HTTP gate.
	Methods []string // upper case; GET also matches HEAD
	Paths   []string // normal form; "/x/**" is /x and all below it; "{name}" is one segment
	Hosts   []string // lower case, no port; "*.example.com" is any name below it

	Headers    []HeaderMatch // all must match
	Identities []Identity    // one of them
	Plans      []string      // of the verified key: one of them
}

// TCPFlags match a packet whose flags have all of Set and none of Clear: bits
// as in the header, FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
// `flags: syn` is SYN without ACK.
type TCPFlags struct{ Set, Clear uint8 }

// PortRange is the ports First to Last, both included.
type PortRange struct{ First, Last uint16 }
