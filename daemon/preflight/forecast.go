package preflight

import "fmt"

// Modes that a forecast knows.
const (
	Native  = "native"
	Generic = "generic"
	Refused = "refused"
)

// Forecast says what attaching to an interface will come to.
type Forecast struct {
	Interface string   `json:"interface"`
	Mode      string   `json:"mode"` // native, generic or refused
	Why       string   `json:"why,omitempty"`
	Cure      string   `json:"cure,omitempty"`
	Notes     []string `json:"notes,omitempty"` // what else bears on it
}

// String is the forecast in words: "eth0: generic because ... (cure: ...)".
func (f Forecast) String() string {
	s := f.Interface + ": " + f.Mode
	if f.Why != "" {
		s += " because " + f.Why
	}
	if f.Cure != "" {
		s += " (cure: " + f.Cure + ")"
	}
	return s
}

// Forecast tells what attaching in mode (auto, native or generic) will come to.
// It changes nothing. The driver may still refuse what it does not show outside:
// then attaching tells why.
func (f *Facts) Forecast(mode string) Forecast {
	out := Forecast{Interface: f.Name, Mode: Native, Notes: f.notes()}
	switch {
	case !f.Ethernet:
		out.Mode = Refused
		out.Why = "its frames have no Ethernet header, so the network gate cannot read them"
		out.Cure = "attach to the interface that carries its packets"
	case f.Attached != "":
		out.Mode = f.Attached
		out.Why = fmt.Sprintf("program id %d is attached", f.Program)
	case mode == Generic:
		out.Mode, out.Why = Generic, "network.attach_mode says so"
	default:
		out.foresee(f, mode)
	}
	if out.Mode == Generic {
		out.Notes = append(out.Notes, "in generic mode packets that GRO has joined count as one")
	}
	return out
}

func (out *Forecast) foresee(f *Facts, mode string) {
	o := foreseen(f)
	if o == nil {
		return
	}
	out.Mode, out.Why, out.Cure = Generic, o.why, o.remedy(f)
	if f.Kind == "vlan" && f.Parent != "" {
		out.Cure = "attach to " + f.Parent + ": it sees the tagged frames, and rules can name the vlan"
	}
	if mode == Native {
		out.Mode = Refused
	}
}

func (f *Facts) notes() []string {
	var notes []string
	if !f.Up {
		notes = append(notes, "it is down: nothing arrives")
	}
	if f.MasterKind == "bond" {
		notes = append(notes, fmt.Sprintf("it belongs to the bond %s: attach to one of the two, never to both", f.Master))
	}
	if f.XDP == nil {
		notes = append(notes, "the kernel does not tell what its driver can do (it does since Linux 6.3)")
	}
	return notes
}
