// Package doctor checks an installation of headgate: the kernel and its rights,
// the mounts, the memory, the config, the daemon and what it has attached. It
// changes nothing, and works without root and with the daemon dead: what it
// cannot see it says.
package doctor

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// State is what a check has come to.
type State string

// The states, from best to worst; Unseen says that the rights did not suffice.
const (
	OK     State = "ok"
	Unseen State = "unseen"
	Warn   State = "warn"
	Fail   State = "fail"
)

// Finding is one line of the report.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	Text  string `json:"text"`
	Cure  string `json:"cure,omitempty"` // of what is not ok
}

// Report is all that was found, and what to do, the most urgent first.
type Report struct {
	OK       bool      `json:"ok"` // nothing fails
	Findings []Finding `json:"findings"`
	ToDo     []string  `json:"todo"`
}

// Patient is the installation to look at.
type Patient struct {
	Path      string         // of the config
	Config    *config.Config // nil where ConfigErr says why
	ConfigErr error
	Status    *daemon.Status // nil where StatusErr says why
	StatusErr error
	NoDaemon  bool   // nobody listens; else StatusErr is about rights or an answer
	PinsErr   error  // with NoDaemon: why what is pinned could not be read
	Version   string // of this binary
	Proc      string // where procfs is: /proc
}

// check is one of the checks. rank orders what is to be done: what lets traffic
// pass unfiltered now comes first, what will hurt later comes last.
type check struct {
	name string
	rank int
	look func(*Patient) []Finding
}

var checks = []check{
	{"config", 2, lookAtConfig},
	{"daemon", 1, lookAtDaemon},
	{"interfaces", 1, lookAtInterfaces},
	{"vlan", 3, lookAtTags},
	{"capabilities", 2, lookAtCapabilities},
	{"kernel", 2, lookAtKernel},
	{"program", 2, lookAtProgram},
	{"jit", 5, lookAtJIT},
	{"lockdown", 2, lookAtLockdown},
	{"bpffs", 2, lookAtPins},
	{"memory", 4, lookAtMemory},
	{"state", 3, lookAtState},
	{"clock", 5, lookAtClock},
	{"clients", 4, lookAtClients},
	{"redis", 4, lookAtRedis},
}

// Examine runs every check.
func Examine(p *Patient) Report {
	r := Report{OK: true, Findings: []Finding{}, ToDo: []string{}}
	type task struct {
		rank int
		Finding
	}
	var tasks []task
	for _, c := range checks {
		for _, f := range c.look(p) {
			f.Check = c.name
			r.Findings = append(r.Findings, f)
			r.OK = r.OK && f.State != Fail
			if f.State == Fail || f.State == Warn && f.Cure != "" {
				tasks = append(tasks, task{c.rank, f})
			}
		}
	}
	slices.SortStableFunc(tasks, func(a, b task) int {
		worse := func(s State) int {
			if s == Fail {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(worse(a.State), worse(b.State)), cmp.Compare(a.rank, b.rank))
	})
	for _, t := range tasks {
		line := t.Check + ": " + t.Text
		if t.Cure != "" {
			line += ". Cure: " + t.Cure
		}
		r.ToDo = append(r.ToDo, line)
	}
	return r
}

func ok(text string) []Finding            { return []Finding{{State: OK, Text: text}} }
func unseen(text, cure string) []Finding  { return []Finding{{State: Unseen, Text: text, Cure: cure}} }
func warning(text, cure string) []Finding { return []Finding{{State: Warn, Text: text, Cure: cure}} }
func failure(text, cure string) []Finding { return []Finding{{State: Fail, Text: text, Cure: cure}} }

// running tells whether a daemon answered.
func (p *Patient) running() bool { return p.Status != nil && !p.Status.Dead }
