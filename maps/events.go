package maps

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Struck is a source that a rule's then has blocked.
type Struck struct {
	Prefix netip.Prefix // IPv4 /32 or IPv6 /64
	Rule   string       // "" if the rule has gone since
	End    time.Time
}

// Events reads what the program tells of its own accord.
type Events struct {
	gate   *Gate
	reader *ringbuf.Reader
}

// Events opens the stream of events. One reader at a time gets them.
func (g *Gate) Events() (*Events, error) {
	r, err := ringbuf.NewReader(g.objects.Events)
	if err != nil {
		return nil, fmt.Errorf("open the events: %w", err)
	}
	return &Events{gate: g, reader: r}, nil
}

// Next waits for the next event until the deadline, then it returns
// os.ErrDeadlineExceeded. It returns os.ErrClosed after Close.
func (e *Events) Next(deadline time.Time) (Struck, error) {
	e.reader.SetDeadline(deadline)
	record, err := e.reader.Read()
	if err != nil {
		return Struck{}, err
	}
	var event bpfEvent
	if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &event); err != nil {
		return Struck{}, fmt.Errorf("read an event: %w", err)
	}
	left := int64(event.End - e.gate.now())
	return Struck{
		Prefix: event.Source.prefix(),
		Rule:   e.gate.ruleOfID(event.Limit),
		End:    time.Now().Add(time.Duration(left / ticksPerNano)),
	}, nil
}

// Of tells whether the events are g's: a gate that was opened anew has others.
func (e *Events) Of(g *Gate) bool { return e.gate == g }

// Close ends Next.
func (e *Events) Close() error { return e.reader.Close() }

// ruleOfID is the name of the rule that has a limit id.
func (g *Gate) ruleOfID(id uint32) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ruleIDs[id]
}

// unstrike ends what a then has blocked of one source, so that lifting its
// block lifts all of it.
func (g *Gate) unstrike(p netip.Prefix) {
	if p != sourceOf(p.Addr()).prefix() {
		return
	}
	g.tableHeld.RLock()
	defer g.tableHeld.RUnlock()
	key := sourceOf(p.Addr())
	if slot := g.table.find(g.table.blockTag(key)); slot != nil {
		// a TAT that moves meanwhile is a newer block's, or another key's
		end := atomic.LoadUint64(&slot.Tat)
		atomic.CompareAndSwapUint64(&slot.Tat, end, min(end, g.now()))
	}
}
