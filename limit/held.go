package limit

// MaxHeld is how many members a key holds at once.
const MaxHeld = 8

// held is a small set whose members stay until their end: the claimed API keys
// of a client. The zero value is empty.
type held struct {
	members [MaxHeld]Key
	ends    [MaxHeld]Ticks
}

// hold keeps member until end, if it is held already or there is room.
func (h *held) hold(member Key, now, end Ticks) bool {
	free := -1
	for i := range h.members {
		switch {
		case !h.alive(i, now):
			h.ends[i], free = 0, i
		case h.members[i] == member:
			h.ends[i] += Until(end, h.ends[i])
			return true
		}
	}
	if free < 0 {
		return false
	}
	h.members[free], h.ends[free] = member, end
	return true
}

// alive says whether place i is taken; 0 is no end, however late it is.
func (h *held) alive(i int, now Ticks) bool {
	return h.ends[i] != 0 && Until(h.ends[i], now) > 0
}

func (h *held) used(now Ticks) float32 {
	n := 0
	for i := range h.ends {
		if h.alive(i, now) {
			n++
		}
	}
	return float32(n) / MaxHeld
}

func (h *held) firm(now Ticks) bool { return h.used(now) == 1 }
