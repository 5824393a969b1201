package daemon

import (
	"net/netip"
	"strings"
	"time"

	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// The control socket speaks HTTP with JSON bodies:
//
//	GET    /v1/status         GET /v1/top
//	GET    /v1/rules          POST /v1/rules    DELETE /v1/rules/{name}
//	GET    /v1/blocks         POST /v1/blocks   DELETE /v1/blocks?prefix=P[&reason=R][&force=true][&all_hosts=true]
//	GET    /v1/allows         POST /v1/allows   DELETE /v1/allows?prefix=P[&reason=R][&force=true][&all_hosts=true]
//	GET    /v1/blocks/batch   POST /v1/blocks/batch
//	GET    /v1/allows/batch   POST /v1/allows/batch
//	GET    /v1/vouches        POST /v1/vouches  DELETE /v1/vouches?source=A
//	GET    /v1/overrides      POST /v1/overrides  DELETE /v1/overrides?rule=R[&owner=O][&plan=P][&key=K][&from=F]
//	POST   /v1/reset          POST /v1/grant
//	POST   /v1/reload         POST /v1/detach   POST /v1/reattach
//	POST   /v1/apply          POST /v1/confirm  POST /v1/rollback
//	GET    /v1/configs        GET /v1/history   POST /v1/undo     POST /v1/panic
//	GET    /v1/top[?window=S&most=N]
//	GET    /v1/events[?rule=R][&follow=true[&since=N]]
//	GET    /v1/capture[?rule=R][&within=P][&seconds=S][&packets=N]
//
// Two headers tell from where a change is asked for: Headgate-Session, what sshd
// puts in SSH_CONNECTION, and Headgate-Sudo, the user who became root.
//
// Who may open the socket may do all of it. An answer that is not 2xx carries a
// Problem: 400 is bad input, 404 something that is not there, 409 a refusal
// that changed nothing, 500 a change that failed and was taken back.
//
//	curl --unix-socket /run/headgate/headgate.sock http://headgate/v1/status

// Problem is the body of every answer that is no success.
type Problem struct {
	Error string `json:"error"` // one line, or one line an error of a config
}

// Where an entry came from.
const (
	FromConfig  = "config"
	FromCommand = "command line"
	FromList    = "list"   // By is its name
	FromDaemon  = "daemon" // which did it by itself
	FromFleet   = "fleet"  // added with --all-hosts, on Host
)

// Origin says where an entry came from, and, if from the command line, who
// added it, when and why.
type Origin struct {
	From string    `json:"from"`
	By   string    `json:"by,omitempty"`
	UID  *uint32   `json:"uid,omitempty"`
	At   time.Time `json:"at,omitzero"`
	Why  string    `json:"why,omitempty"`
	Host string    `json:"host,omitempty"` // of the fleet, on which it was added

	// From where, over SSH: the asker's own address, and the end on this host.
	Peer netip.Addr     `json:"peer,omitzero"`
	Over netip.AddrPort `json:"over,omitzero"`
}

// Entry is one block or allow. A prefix may have several, with ends and
// reasons of their own; it is blocked or allowed until the latest.
type Entry struct {
	Prefix netip.Prefix `json:"prefix"`
	End    time.Time    `json:"end,omitzero"`      // zero: never
	EndsIn int64        `json:"ends_in,omitempty"` // seconds, rounded up; 0: never
	Reason string       `json:"reason,omitempty"`
	Origin
}

// EntryRequest asks for a block or an allow.
type EntryRequest struct {
	Prefix netip.Prefix `json:"prefix"`
	For    int64        `json:"for,omitempty"`     // seconds from now
	Ever   bool         `json:"forever,omitempty"` // exactly one of For and Ever
	Reason string       `json:"reason,omitempty"`
	Peer   netip.Addr   `json:"peer,omitzero"`   // whom a block must not lock out: where the asker sits
	Force  bool         `json:"force,omitempty"` // block it all the same

	AllHosts bool `json:"all_hosts,omitempty"` // of the fleet, and not on this one alone
}

// EntryRemoval asks for the end of a block or an allow; in the query of DELETE.
type EntryRemoval struct {
	Prefix netip.Prefix
	Reason *string // only of the entry with this reason
	Force  bool    // also where the asker is blocked without it

	AllHosts bool // what was added for all hosts, and nothing else
}

// EntryReply is what came of a block, an allow or their removal.
type EntryReply struct {
	Entry    Entry    `json:"entry"`              // as it now stands, or what was removed
	Removed  int      `json:"removed,omitempty"`  // entries taken away
	Covered  []Entry  `json:"covered,omitempty"`  // what still covers the prefix
	Warnings []string `json:"warnings,omitempty"` // why it may not do what was meant
	Sources  int      `json:"sources,omitempty"`  // seen in the last minute that a block covers
	Vouched  int      `json:"vouched,omitempty"`  // of them, those that are vouched for

	Fleet *FleetReply `json:"fleet,omitempty"` // of a change for all hosts
}

// BatchRequest asks for blocks or allows of many prefixes with one end and one
// reason: of all of them, or of none.
type BatchRequest struct {
	Prefixes []netip.Prefix `json:"prefixes"`
	For      int64          `json:"for,omitempty"`     // seconds from now
	Ever     bool           `json:"forever,omitempty"` // exactly one of For and Ever
	Reason   string         `json:"reason,omitempty"`
	Peer     netip.Addr     `json:"peer,omitzero"`   // whom a block must not lock out
	Force    bool           `json:"force,omitempty"` // block it all the same
}

// BatchReply is what came of it. Added, Unchanged, Extended and Longer make
// Prefixes in all.
type BatchReply struct {
	Prefixes  int       `json:"prefixes"`          // asked for, each once
	Added     int       `json:"added"`             // were in no import of this reason
	Unchanged int       `json:"unchanged"`         // had this end already
	Extended  int       `json:"extended"`          // ended earlier
	Longer    int       `json:"longer"`            // end later, and keep that end
	End       time.Time `json:"end,omitzero"`      // zero: never
	EndsIn    int64     `json:"ends_in,omitempty"` // seconds, rounded up; 0: never
}

// BatchProgress is the answer to GET /v1/blocks/batch: how many prefixes the
// gates have yet to look at.
type BatchProgress struct {
	Pending int64 `json:"pending"`
}

// Entries is the answer to GET /v1/blocks and /v1/allows.
type Entries struct {
	Entries []Entry `json:"entries"` // by prefix, then end
}

// Verdicts counts packets, bytes or requests by what became of them.
type Verdicts struct {
	Passed  uint64 `json:"passed"`
	Refused uint64 `json:"refused"`
	Watched uint64 `json:"watched"` // would have been refused
}

// Rule is one rule with its counts. A rule of the network gate has Packets and
// Bytes, one of the HTTP gate has Requests.
type Rule struct {
	Name      string      `json:"name"`
	Gate      string      `json:"gate"`
	Mode      string      `json:"mode"`
	Text      string      `json:"text"`              // one line of YAML
	WorstCase string      `json:"worst_case"`        // in words
	Counted   string      `json:"counted,omitempty"` // in a fleet: where, and how much more it may let through, in words
	Aside     string      `json:"aside,omitempty"`   // why it is not in force
	Packets   *Verdicts   `json:"packets,omitempty"`
	Bytes     *Verdicts   `json:"bytes,omitempty"`
	Requests  *Verdicts   `json:"requests,omitempty"`
	Over      uint64      `json:"over,omitempty"`    // of those passed, above the line in the soft part
	Held      *limit.Held `json:"held,omitempty"`    // memory of its bucket keys; nil: of the network gate, or not known
	End       time.Time   `json:"end,omitzero"`      // zero: never
	EndsIn    int64       `json:"ends_in,omitempty"` // seconds, rounded up; 0: never

	// By the minute, as far back as the daemon has known the rule.
	Since       time.Time `json:"since,omitzero"`        // when it was first in force
	LastHit     time.Time `json:"last_hit,omitzero"`     // when it last judged anything
	LastRefused time.Time `json:"last_refused,omitzero"` // when it last refused, or would have
	Origin
}

// UndoRequest asks to take back the asker's last change.
type UndoRequest struct {
	Force bool   `json:"force,omitempty"` // whomever it locks out
	Why   string `json:"why,omitempty"`
}

// UndoReply is the answer to POST /v1/undo.
type UndoReply struct {
	Undone  HistoryEntry `json:"undone"`
	Changes []Change     `json:"changes,omitempty"` // of the config
	Fleet   *FleetReply  `json:"fleet,omitempty"`   // of a change for all hosts
}

// OpenRequest asks to open the network gate to everything, or to end that.
type OpenRequest struct {
	Open bool   `json:"open"`
	Done bool   `json:"done,omitempty"` // through the pins: it is only to be written down
	Why  string `json:"why,omitempty"`
}

// OpenReply is the answer to POST /v1/panic.
type OpenReply struct {
	Open bool `json:"open"`
}

// Rules is the answer to GET /v1/rules, in the order in which they are written.
type Rules struct {
	Rules []Rule `json:"rules"`
}

// RuleRequest asks for a rule: added, or put in the place of the one of the
// same name that was added from the command line before.
type RuleRequest struct {
	Rule  string `json:"rule"` // a YAML or JSON mapping, as in the config
	Why   string `json:"why,omitempty"`
	For   int64  `json:"for,omitempty"`   // seconds from now; 0: for ever
	Force bool   `json:"force,omitempty"` // also where it stops the asker's own session

	AllHosts bool `json:"all_hosts,omitempty"` // of the fleet, and not on this one alone
}

// RuleReply is what came of adding or removing a rule.
type RuleReply struct {
	Rule     Rule     `json:"rule"`
	Was      string   `json:"was,omitempty"`   // text of the rule it replaced
	Fresh    bool     `json:"fresh,omitempty"` // replaced, and its counts start anew
	Warnings []string `json:"warnings,omitempty"`

	Fleet *FleetReply `json:"fleet,omitempty"` // of a change for all hosts
}

// ReloadRequest may be left out.
type ReloadRequest struct {
	Force bool `json:"force,omitempty"` // whomever it locks out
}

// ReloadReply is the answer to POST /v1/reload.
type ReloadReply struct {
	Changed    bool     `json:"changed"` // the files' content differs from what was in force
	Generation uint64   `json:"generation"`
	Hash       string   `json:"hash"`
	Rules      int      `json:"rules"`
	Warnings   []string `json:"warnings,omitempty"`
}

// ApplyRequest asks for a config in the place of the one in force.
type ApplyRequest struct {
	Config  string `json:"config,omitempty"`  // its text; empty: the config file as it is on disk
	File    string `json:"file,omitempty"`    // what the asker calls it
	Confirm int64  `json:"confirm,omitempty"` // seconds: on trial, rolled back unless confirmed in them; 0: for good
	DryRun  bool   `json:"dry_run,omitempty"` // say what would change, and change nothing
	Force   bool   `json:"force,omitempty"`   // whomever it locks out
	Why     string `json:"why,omitempty"`
}

// Change is one difference between two configs.
type Change struct {
	Op   string `json:"op"`   // + added, - removed, ~ changed
	What string `json:"what"` // rule, block, allow, list, interface or setting
	Name string `json:"name"`
	Text string `json:"text,omitempty"`
	Was  string `json:"was,omitempty"`
}

// ApplyReply is what came of it.
type ApplyReply struct {
	Changes  []Change     `json:"changes"` // empty: what is in force says the same
	Hash     string       `json:"hash"`
	Trial    *TrialStatus `json:"trial,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
}

// ConfirmRequest asks to make the config on trial the config.
type ConfirmRequest struct {
	Force bool `json:"force,omitempty"` // also over a config file that changed meanwhile
}

// ConfirmReply is the answer to POST /v1/confirm.
type ConfirmReply struct {
	File string `json:"file"` // the config
	Hash string `json:"hash"`
}

// RollbackRequest asks for the config before.
type RollbackRequest struct {
	To    int    `json:"to,omitempty"`    // its number; 0: what was before the trial, or else before the config in force
	Force bool   `json:"force,omitempty"` // whomever it locks out
	Why   string `json:"why,omitempty"`
}

// RollbackReply is the answer to POST /v1/rollback.
type RollbackReply struct {
	Trial   string   `json:"trial,omitempty"`  // what was on trial
	Number  int      `json:"number,omitempty"` // of the config gone back to
	Changes []Change `json:"changes"`
	Hash    string   `json:"hash"`
}

// Configs is the answer to GET /v1/configs, the oldest first.
type Configs struct {
	Configs []KeptConfig `json:"configs"`
}

// DetachReply is the answer to POST /v1/detach.
type DetachReply struct {
	Interfaces []string `json:"interfaces"`
}

// Status is the answer to GET /v1/status.
type Status struct {
	Version string        `json:"version,omitempty"`
	PID     int           `json:"pid,omitempty"`
	Started time.Time     `json:"started,omitzero"`
	Dead    bool          `json:"dead,omitempty"` // no daemon answered; the CLI read the pinned maps
	Ready   bool          `json:"ready"`
	Faults  []string      `json:"faults,omitempty"` // why it is not ready
	Config  ConfigStatus  `json:"config"`
	Network NetworkStatus `json:"network"`
	HTTP    HTTPStatus    `json:"http"`
	Trial   *TrialStatus  `json:"trial,omitempty"`
	Rules   []Rule        `json:"rules"`
	Lists   []ListStatus  `json:"lists,omitempty"`
	Board   *BoardStatus  `json:"board,omitempty"` // nil: this host is in no fleet
	Blocks  int           `json:"blocks"`          // prefixes
	Allows  int           `json:"allows"`
}

// ConfigStatus tells which config is in force and how the last reload went.
type ConfigStatus struct {
	Path       string    `json:"path"`
	Generation uint64    `json:"generation"` // 1 at start, one more for each change put in force
	Hash       string    `json:"hash"`       // of the config and its key file, in hex
	Loaded     time.Time `json:"loaded,omitzero"`
	OK         bool      `json:"last_reload_ok"`
	Error      string    `json:"last_reload_error,omitempty"`
	Warnings   []string  `json:"warnings,omitempty"`
}

// NetworkStatus is the state of the network gate.
type NetworkStatus struct {
	On         bool        `json:"on"`
	Detached   bool        `json:"detached,omitempty"` // taken off by `detach`
	Opened     bool        `json:"opened,omitempty"`   // to everything, by `panic`
	Interfaces []Interface `json:"interfaces"`
	Reasons    []Reason    `json:"reasons,omitempty"`
	Table      *Table      `json:"table,omitempty"`
	IPv4       *Room       `json:"ipv4,omitempty"` // prefixes of rules and lists
	IPv6       *Room       `json:"ipv6,omitempty"`
	PinsEnd    string      `json:"pins_end,omitempty"` // why what is pinned will not outlive the container
	Covered    []string    `json:"covered,omitempty"`  // interfaces that a cut-short change of the attach mode left to a tc program; known with the daemon dead
	Warnings   []string    `json:"warnings,omitempty"`
	Faults     []string    `json:"faults,omitempty"` // of the pins and of looking at interfaces

	Repairs  []attachments.Repair `json:"repairs,omitempty"`  // the last, of what others took away
	Repaired map[string]uint64    `json:"repaired,omitempty"` // how many since the start, by kind

	Leashed      bool      `json:"leashed,omitempty"`      // the daemon is dead for longer than network.leash: everything passes
	MapRepairs   uint64    `json:"map_repairs,omitempty"`  // entries of the pinned maps that others had changed
	MapsRepaired time.Time `json:"maps_repaired,omitzero"` // when, the last time
}

// Room is how many prefixes of one family the network gate holds, and may hold.
type Room struct {
	Held  int `json:"held"`
	Bound int `json:"bound"`
}

// Interface is one interface and what the kernel says is attached to it.
type Interface struct {
	Name       string `json:"name"`        // or the item of network.interfaces that stands for none
	AttachMode string `json:"attach_mode"` // native, generic, none; out of sight: in another network namespace
	ProgramID  uint32 `json:"program_id"`
	Pin        string `json:"pin"`
	Warning    string `json:"warning,omitempty"` // such as why generic, or why not attached
	Fault      string `json:"fault,omitempty"`   // why it is not as the config says
}

// Reason is what one cause of a verdict has seen.
type Reason struct {
	Verdict string `json:"verdict"` // pass or drop
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// ListStatus is how one list of the config fares.
type ListStatus struct {
	Name     string    `json:"name"`
	Source   string    `json:"source"` // a path or an https address
	Prefixes int       `json:"prefixes"`
	Read     time.Time `json:"read,omitzero"`   // when the source held them; zero: never read
	Age      int64     `json:"age"`             // seconds since then
	Error    string    `json:"error,omitempty"` // of the last try; the last good content stays in force
}

// Table tells how the bucket table fares.
type Table struct {
	Slots       uint64 `json:"slots"`
	Live        uint64 `json:"live"`         // whose bucket is not full
	EvictedLive uint64 `json:"evicted_live"` // live buckets that lost their slot to a newcomer
	Overflowed  uint64 `json:"overflowed"`   // packets charged to an overflow bucket
	Contended   uint64 `json:"contended"`    // packets that lost a race for a slot too often
	UndoFailed  uint64 `json:"undo_failed"`  // charges left standing: too strict
	Recharged   uint64 `json:"recharged"`    // charges that met a slot that was just lost
}

// HTTPStatus is the state of the HTTP gate's process.
type HTTPStatus struct {
	On           bool                `json:"on"`
	Up           bool                `json:"up"`
	PID          int                 `json:"pid,omitempty"`
	User         string              `json:"user,omitempty"`
	Restarts     uint64              `json:"restarts"`
	Error        string              `json:"error,omitempty"` // how it last ended
	Fresh        bool                `json:"fresh"`           // it answered just now; else the counts are the last known
	Listeners    []Listener          `json:"listeners"`
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	Answers      map[string]uint64   `json:"answers,omitempty"`           // requests by status code
	Ended        map[string]uint64   `json:"connections_ended,omitempty"` // without an answer, by reason
	Fleet        *l7.FleetState      `json:"fleet,omitempty"`             // nil: this host is alone
	LostLines    uint64              `json:"lost_log_lines"`              // of the access log: the disk was full or slow
	Faults       uint64              `json:"faults"`                      // requests that met a fault of the gate itself
	Buckets      limit.Stats         `json:"buckets"`
	Hidden       string              `json:"hidden,omitempty"`           // what seems to come through a proxy that is not declared
	Restored     *BucketsRestored    `json:"buckets_restored,omitempty"` // what the process before left; nil: nothing
	StopsWithin  int64               `json:"stops_within"`               // seconds that a planned stop takes at most

	held map[string]limit.Held // by rule
}

// Listener is one front door.
type Listener struct {
	Address         string    `json:"address"`
	Door            string    `json:"door"`
	Upstream        string    `json:"upstream"`
	CertificateEnds time.Time `json:"certificate_ends,omitzero"` // the first of its certificates to end; zero: no TLS
}

// Span writes a time of whole seconds as people say it: 1h, 10m, 1m30s.
func Span(seconds int64) string {
	s := (time.Duration(seconds) * time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
