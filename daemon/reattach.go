package daemon

import (
	"errors"
	"strings"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/attachments"
)

// ReattachRequest asks for another attach mode of one interface.
type ReattachRequest struct {
	Interface string `json:"interface"`
	Mode      string `json:"mode,omitempty"` // native, generic or auto; empty: as network.attach_mode says
}

// ReattachReply is what came of it.
type ReattachReply struct {
	Interface  string `json:"interface"`
	Was        string `json:"was"` // attach mode before: native, generic or none
	AttachMode string `json:"attach_mode"`
	ProgramID  uint32 `json:"program_id"`
	Warning    string `json:"warning,omitempty"` // why generic
}

// reattach changes the attach mode of an interface; nothing passes unjudged
// meanwhile.
func (n *network) reattach(q ReattachRequest) (ReattachReply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.gate == nil && n.detached:
		return ReattachReply{}, refuse("%s: %s", q.Interface, detachedWhy)
	case n.gate == nil:
		return ReattachReply{}, refuse("the network gate is off: name interfaces in network.interfaces")
	}
	mode := n.now.cfg.Network.AttachMode
	if q.Mode != "" {
		mode = config.AttachMode(q.Mode)
	}
	if mode != config.AttachAuto && mode != config.AttachNative && mode != config.AttachGeneric {
		return ReattachReply{}, badInput("mode %q: native, generic or auto", q.Mode)
	}
	was, is, err := n.attached.Reattach(q.Interface, mode)
	var unchanged attachments.Unchanged
	switch {
	case errors.Is(err, attachments.ErrNotNamed):
		return ReattachReply{}, notThere("%s is not in network.interfaces: %s", q.Interface, strings.Join(n.now.cfg.Network.Interfaces, ", "))
	case errors.As(err, &unchanged):
		return ReattachReply{}, refuse("%v", err)
	case err != nil:
		return ReattachReply{}, err
	}
	return ReattachReply{is.Interface, was.AttachMode, is.AttachMode, is.ProgramID, is.Warning}, nil
}
