package attachments

import (
	"fmt"

	"github.com/cilium/ebpf/link"
)

// recall takes over the links that are pinned: what an earlier daemon attached
// goes on, with our program in it. Links that hold nothing any more are removed.
func (k *Keeper) recall(s Surroundings) error {
	if k.gate != nil {
		defer k.gate.HoldPrograms()()
	}
	held := map[int]*hold{}
	err := eachLink(k.pins, func(pin string, l link.Link) error {
		info, err := l.Info()
		if err != nil {
			l.Close()
			return fmt.Errorf("look at the pinned link %s: %w", pin, err)
		}
		h := &hold{link: l, id: info.ID, name: pinnedName(pin), pin: pin}
		x := info.XDP()
		if x == nil {
			l.Close()
			return fmt.Errorf("the pinned link %s is not of an XDP program (remove the file: it is not headgate's)", pin)
		}
		at, ok := s.byIndex(int(x.Ifindex))
		if !ok || held[at.index] != nil || !at.runs(uint32(info.Program)) {
			k.log.Info("removed a pin of an interface that has gone", "interface", h.name)
			return h.forget()
		}
		h.index = at.index
		held[at.index] = h
		return k.programs().update(l, at.name)
	})
	if err != nil {
		closeAll(held)
		return err
	}
	k.held = held
	return nil
}

func closeAll(held map[int]*hold) {
	for _, h := range held {
		h.close()
	}
}
