package daemon

// tellCarried says what became of maps that another layout had pinned.
func (n *network) tellCarried() {
	layout, lost, ok := n.gate.Carried()
	if !ok {
		return
	}
	n.log.Info("the pinned maps of another version are carried over", "layout", layout, "lost", len(lost))
	for _, line := range lost {
		n.log.Warn("lost with the layout of the pinned maps: " + line)
	}
}

// settle lets go of the maps of another layout once the new programs are in
// place. Should it fail, the next start does it.
func (n *network) settle() {
	if err := n.gate.Settle(); err != nil {
		n.log.Error("let go of the maps of another version: the next start tries again", "err", err)
	}
}
