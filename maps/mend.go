package maps

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/config"
)

// ResetSource forgets what a source has spent under a rule in force that counts
// per source alone: it starts full. It returns false when nothing was spent. The
// source's strikes and blocks stay.
func (g *Gate) ResetSource(r config.Rule, source netip.Addr) (spent bool, err error) {
	if !slices.Equal(r.Per, []config.Per{config.PerSource}) {
		return false, fmt.Errorf("reset rule %s: it does not count per source alone, so no bucket is one source's", r.Name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tableHeld.RLock()
	defer g.tableHeld.RUnlock()
	for id, name := range g.ruleIDs {
		if name == r.Name {
			tag := g.table.sourceTag(id, source, int(sourceBits4(&r)), int(sourceBits6(&r)))
			return g.table.empty(tag, g.now()), nil
		}
	}
	return false, fmt.Errorf("reset rule %s: it is not in force", r.Name)
}

// sourceTag is the tag of a source's bucket under the limit id, cut to bits as
// cut_source of bpf/take.h does.
func (t *Table) sourceTag(id uint32, source netip.Addr, bits4, bits6 int) uint64 {
	hi, lo := sourceKey(source, bits6)
	if source.Unmap().Is4() {
		lo = lo >> (32 - bits4) << (32 - bits4)
	}
	return t.tag(t.hash(hi, lo), t.salt(bpfSlotKindSLOT_RULE, id), bpfSlotKindSLOT_RULE)
}

// empty ends the debt of the slot that holds tag. A charge that comes in between
// is given back as well, as if the reset had come after it.
func (t *Table) empty(tag, now uint64) bool {
	for {
		slot := t.find(tag)
		if slot == nil {
			return false
		}
		tat := atomic.LoadUint64(&slot.Tat)
		if int64(tat-now) <= 0 {
			return false
		}
		if atomic.LoadUint64(&slot.Tag)&^tagDenied == tag && atomic.CompareAndSwapUint64(&slot.Tat, tat, now) {
			return true
		}
	}
}
