package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/daemon/preflight"
)

func lookAtConfig(p *Patient) []Finding {
	if errors.Is(p.ConfigErr, fs.ErrPermission) {
		return unseen(p.ConfigErr.Error(), "run doctor as root or as the daemon's user")
	}
	if p.ConfigErr != nil {
		var out []Finding
		for _, line := range strings.Split(p.ConfigErr.Error(), "\n") {
			out = append(out, failure(line, "mend "+p.Path+" (headgate check)")...)
		}
		return out
	}
	var out []Finding
	for _, w := range config.Warnings(p.Config) {
		out = append(out, warning(w, "")...)
	}
	return append(ok(fmt.Sprintf("%s is good: %d rules", p.Path, len(p.Config.Rules))), out...)
}

func lookAtDaemon(p *Patient) []Finding {
	switch {
	case p.running():
		return answers(p)
	case !p.NoDaemon:
		return unseen(p.StatusErr.Error(), "run doctor as root or in the group headgate")
	case p.PinsErr != nil:
		return unseen("no daemon answers; what it may have pinned cannot be read: "+p.PinsErr.Error(), "run doctor as root")
	case p.Status != nil && len(p.Status.Network.Interfaces)+len(p.Status.Network.Covered) > 0:
		out := failure("the daemon is dead; what it pinned goes on filtering, and blocks still end", "look at its log, then start it: headgate run")
		for _, name := range p.Status.Network.Covered {
			out = append(out, warning(daemon.CutShort(name), daemon.CutShortCure)...)
		}
		return out
	}
	return warning("no daemon runs and nothing is pinned: nothing is filtered", "headgate run")
}

// answers judges what the daemon says of itself. What it says of interfaces is
// theirs.
func answers(p *Patient) []Finding {
	st := p.Status
	out := ok(fmt.Sprintf("version %s, pid %d, config generation %d", st.Version, st.PID, st.Config.Generation))
	if st.Version != p.Version {
		out = append(out, warning(fmt.Sprintf("the daemon is of version %s, this is %s", st.Version, p.Version), "restart the daemon: nothing passes unfiltered meanwhile")...)
	}
	if !st.Config.OK {
		first, _, _ := strings.Cut(st.Config.Error, "\n")
		out = append(out, failure("the last reload failed, the config before it stays in force: "+first, "mend "+st.Config.Path+", then: headgate reload")...)
	}
	for _, f := range st.Faults {
		if !strings.HasPrefix(f, "interface ") {
			out = append(out, failure("not ready: "+f, "")...)
		}
	}
	return out
}

func (p *Patient) attached() []daemon.Interface {
	if p.Status == nil {
		return nil
	}
	return p.Status.Network.Interfaces
}

func lookAtInterfaces(p *Patient) []Finding {
	switch {
	case p.Config == nil:
		return unseen("which interfaces: there is no good config", "")
	case len(p.Config.Network.Interfaces) == 0:
		return ok("network.interfaces is empty: the network gate is off")
	}
	choices, left, err := attachments.Choose(p.Config)
	if err != nil {
		return unseen(err.Error(), "")
	}
	var out []Finding
	for _, c := range choices {
		out = append(out, p.choiceFindings(c)...)
	}
	for _, l := range left {
		out = append(out, ok(l)...)
	}
	return out
}

func (p *Patient) choiceFindings(c attachments.Choice) []Finding {
	switch {
	case !c.There && config.IsPattern(c.Interface), !c.There && c.Interface == config.AutoInterfaces:
		return warning(c.Interface+": "+c.Fault, "")
	case c.Fault != "":
		return failure(c.Interface+": "+c.Fault, "name in network.interfaces what `ip link` shows, each packet's way once")
	}
	f, err := preflight.Look(c.Interface)
	if err != nil {
		return unseen(err.Error(), "")
	}
	out := p.interfaceFindings(&f)
	if c.Note != "" {
		out = append(out, warning(c.Note, "")...)
	}
	return out
}

func (p *Patient) interfaceFindings(f *preflight.Facts) []Finding {
	mode := string(p.Config.Network.AttachMode)
	for _, i := range p.attached() {
		if i.Name == f.Name {
			return p.ours(i, f)
		}
	}
	// without an answer and without its pins nobody knows whose it is
	known := p.Status != nil || p.NoDaemon && p.PinsErr == nil
	if f.Attached != "" && !known {
		return unseen(fmt.Sprintf("%s has a program, id %d, %s: whether it is headgate's cannot be seen", f.Name, f.Program, f.Attached), "run doctor as root")
	}
	if f.Attached != "" {
		return failure(fmt.Sprintf("%s has a program that is not headgate's: id %d, %s", f.Name, f.Program, f.Attached),
			fmt.Sprintf("take it off (bpftool prog show id %d tells what it is) or name another interface: headgate never removes it", f.Program))
	}
	forecast := f.Forecast(mode)
	text := fmt.Sprintf("%s (driver %s, MTU %d): would be attached in %s mode", f.Name, orUnknown(f.Driver), f.MTU, forecast.Mode)
	if forecast.Why != "" {
		text += ", as " + forecast.Why
	}
	switch {
	case forecast.Mode == preflight.Refused:
		return failure(fmt.Sprintf("%s: attaching would be refused, as %s", f.Name, forecast.Why), forecast.Cure)
	case forecast.Mode == preflight.Generic && mode != preflight.Generic:
		return withNotes(warning(text, forecast.Cure), forecast)
	}
	return withNotes(ok(text), forecast)
}

// ours judges what headgate has attached to an interface.
func (p *Patient) ours(i daemon.Interface, f *preflight.Facts) []Finding {
	if i.ProgramID == 0 {
		cure := "headgate run"
		if p.running() {
			cure = "headgate reload"
		}
		return failure(fmt.Sprintf("%s is not attached: %s", i.Name, i.Warning), cure)
	}
	text := fmt.Sprintf("%s is attached in %s mode, program id %d", i.Name, i.AttachMode, i.ProgramID)
	if i.AttachMode != preflight.Generic || p.Config.Network.AttachMode == config.AttachGeneric {
		if i.Warning != "" {
			return warning(text+": "+i.Warning, "")
		}
		return ok(text)
	}
	anew := *f // as if nothing were attached
	anew.Attached = ""
	forecast := anew.Forecast(string(config.AttachAuto))
	switch {
	case forecast.Mode == preflight.Native && i.Warning != "":
		return warning(text+": "+i.Warning, "do what it says, if it is not done: headgate reattach "+i.Name)
	case forecast.Mode == preflight.Native:
		return warning(text+", and nothing is seen that stands in the way of native", "headgate reattach "+i.Name)
	}
	return withNotes(warning(text+", as "+forecast.Why, forecast.Cure+", then: headgate reattach "+i.Name), forecast)
}

// withNotes adds what else bears on an interface to the text of its finding.
func withNotes(found []Finding, f preflight.Forecast) []Finding {
	found[0].Text = strings.Join(append([]string{found[0].Text}, f.Notes...), "; ")
	return found
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// lookAtTags finds rules by VLAN whose tags do not reach the network gate.
func lookAtTags(p *Patient) []Finding {
	if p.Config == nil {
		return nil
	}
	choices, _, err := attachments.Choose(p.Config)
	if err != nil {
		return unseen(err.Error(), "")
	}
	s, err := attachments.Survey()
	if err != nil {
		return unseen(err.Error(), "")
	}
	var out []Finding
	for _, c := range choices {
		f, err := preflight.Look(c.Interface)
		if !c.There || err != nil {
			continue
		}
		if h := f.HidesTags(); h != nil {
			out = append(out, hidden(p.Config.Rules, s, c.Interface, h)...)
		}
	}
	return out
}

func hidden(rules []config.Rule, s attachments.Surroundings, name string, h *preflight.Hidden) []Finding {
	var out []Finding
	for _, r := range rules {
		if r.Gate != config.GateNetwork || !s.NeedsTag(&r.Match, name) {
			continue
		}
		find := warning
		if h.Sure {
			find = failure
		}
		out = append(out, find(fmt.Sprintf("rule %s: %s", r.Name, h.Why()), h.Cure)...)
	}
	return out
}

// lookAtClients finds clients that are hidden behind a proxy.
func lookAtClients(p *Patient) []Finding {
	switch {
	case !p.running() || !p.Status.HTTP.On:
		return nil
	case p.Status.HTTP.Hidden != "":
		return warning(p.Status.HTTP.Hidden, daemon.HiddenCure)
	}
	return ok("no proxy that is not declared seems to hide the clients of the HTTP gate")
}
