package daemon

import (
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/maps"
)

// Attachment is what the kernel says of our program on one interface.
type Attachment struct {
	Interface  string `json:"interface"`
	AttachMode string `json:"attach_mode"` // native, generic, or none
	ProgramID  uint32 `json:"program_id"`
	Pin        string `json:"pin"`
	Warning    string `json:"warning,omitempty"` // why generic, or why not attached
}

// attach puts the gate's program on the interface, or on the link that is
// pinned there already, and pins the link.
func attach(g *maps.Gate, pins, iface string, mode config.AttachMode) (Attachment, error) {
	panic("soon")
}

// attachments asks the kernel what is attached by the links pinned under pins.
func attachments(pins string) ([]Attachment, error) { panic("soon") }

// detach takes our program off one interface and removes its pin.
func detach(pins, iface string) error { panic("soon") }

// DetachAll takes our programs off every interface and removes all pins under
// pins. It works without a daemon.
func DetachAll(pins string) error { panic("soon") }
