package maps

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
)

// sampleMaps have an entry for each CPU.
var sampleMaps = []string{"samples", "captures"}

// Outcome is what the deciding rule did with a packet.
type Outcome uint8

const (
	Passed Outcome = iota
	Refused
	Watched // it passed, and would have been refused
)

// Sample is what became of one packet, in the place of several.
type Sample struct {
	At        time.Time
	Source    netip.Addr // invalid: the frame was not IP
	Rule      string     // that decided; "": none did
	Reason    string     // as in ReasonCount
	Outcome   Outcome
	Stands    uint32 // for how many packets, at least 1
	Length    uint32 // bytes of the whole frame
	Interface uint32 // index, where it came in
	Protocol  uint8  // of IP
	From, To  uint16 // ports; To is the type of ICMP
}

// Samples reads what the program samples: every packet while there are fewer
// than about a thousand a second on a CPU, and about a thousand a second of any
// more, of what passes and of what does not. Not for use by several goroutines at once.
type Samples struct {
	gate   *Gate
	memory []byte
	rings  []*bpfSampleRing
	read   []uint64 // of each ring
	lost   uint64
}

// Samples begins to read samples, with those to come.
func (g *Gate) Samples() (*Samples, error) {
	memory, err := mapMemory(g.objects.Samples, false)
	if err != nil {
		return nil, err
	}
	s := &Samples{gate: g, memory: memory, rings: ringsIn[bpfSampleRing](memory, g.objects.Samples)}
	for _, r := range s.rings {
		s.read = append(s.read, atomic.LoadUint64(&r.Written))
	}
	return s, nil
}

// ringsIn are the entries of a map of rings that is mapped into memory.
func ringsIn[R any](memory []byte, m *ebpf.Map) (all []*R) {
	for i := range int(m.MaxEntries()) {
		all = append(all, (*R)(unsafe.Pointer(&memory[i*int(unsafe.Sizeof(*new(R)))])))
	}
	return all
}

// Of tells whether the samples are g's: a gate that was opened anew has others.
func (s *Samples) Of(g *Gate) bool { return s.gate == g }

// Close lets go of the samples.
func (s *Samples) Close() error {
	s.rings = nil
	return unix.Munmap(s.memory)
}

// Lost is how many samples were overwritten before they were read. What is read
// four times a second loses none.
func (s *Samples) Lost() uint64 { return s.lost }

// Read hands what was sampled since the last time to each.
func (s *Samples) Read(each func(Sample)) {
	d := s.gate.decoder()
	var batch []bpfSample
	for i, r := range s.rings {
		var lost uint64
		batch, lost = unread(batch[:0], r.Samples[:], &r.Written, &s.read[i])
		s.lost += lost
		for j := range batch {
			each(d.decode(&batch[j]))
		}
	}
}

// unread copies from ring what was written since read, and tells how much of it
// was overwritten before.
func unread[R any](batch, ring []R, written, read *uint64) (_ []R, lost uint64) {
	size := uint64(len(ring))
	end := atomic.LoadUint64(written)
	from := *read
	if end-from > size {
		from = end - size
	}
	for i := from; i != end; i++ {
		batch = append(batch, ring[i%size])
	}
	// the program went on meanwhile, and may be writing one more
	if now := atomic.LoadUint64(written); now-from >= size {
		torn := min(now-from-size+1, end-from)
		batch, from = slices.Delete(batch, 0, int(torn)), from+torn
	}
	lost = from - *read
	*read = end
	return batch, lost
}

// decoder gives samples their names and times.
type decoder struct {
	rules map[uint32]string // by counter
	now   time.Time
	ticks uint64
}

func (g *Gate) decoder() decoder {
	d := decoder{now: time.Now(), ticks: g.now()}
	if names := g.counterNames.Load(); names != nil {
		d.rules = *names
	}
	return d
}

func (d decoder) decode(s *bpfSample) Sample {
	out := Sample{
		At:   d.now.Add(time.Duration(int64(s.At-d.ticks) / ticksPerNano)),
		Rule: d.rules[s.Counter], Reason: "unknown", Outcome: Outcome(s.Outcome),
		Stands: max(s.Stands, 1), Length: s.Length, Interface: s.Interface,
		Protocol: s.Proto, From: s.Sport, To: s.Dport,
	}
	if int(s.Reason) < len(reasonNames) {
		out.Reason = reasonNames[s.Reason]
	}
	if s.Hi != 0 || s.Lo != 0 {
		out.Source = addressOf(s.Hi, s.Lo)
	}
	return out
}

// addressOf is the address that packet.hi and lo of bpf/parse.h stand for.
func addressOf(hi, lo uint64) netip.Addr {
	k := bpfSourceKey{Hi: hi, Lo: lo}
	if a := k.address(); a.Is4() {
		return a
	}
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(hi>>(56-8*i)), byte(lo>>(56-8*i))
	}
	return netip.AddrFrom16(b)
}

// SourcePrefix is what a source is named by where sources are counted: IPv4
// whole, IPv6 by its /64.
func SourcePrefix(a netip.Addr) netip.Prefix { return sourceOf(a).prefix() }

// noteCounters makes the names of the counters in force known to who reads
// samples. The caller holds g.mu, or is alone.
func (g *Gate) noteCounters() {
	names := make(map[uint32]string, len(g.counters))
	for name, index := range g.counters {
		names[index] = name
	}
	g.counterNames.Store(&names)
}

// FullIn is how long it takes until a source's bucket under r is full again; 0 if
// it is. ok is false where r has no bucket of one source alone, or is not in
// force.
func (g *Gate) FullIn(r config.Rule, source netip.Addr) (left time.Duration, ok bool) {
	if !slices.Equal(r.Per, []config.Per{config.PerSource}) {
		return 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	id, ok := uint32(0), false
	for i, name := range g.ruleIDs {
		if name == r.Name {
			id, ok = i, true
		}
	}
	if !ok || g.closed {
		return 0, false
	}
	g.tableHeld.RLock()
	defer g.tableHeld.RUnlock()
	slot := g.table.find(g.table.sourceTag(id, source, int(sourceBits4(&r)), int(sourceBits6(&r))))
	if slot == nil {
		return 0, true
	}
	return time.Duration(max(0, int64(atomic.LoadUint64(&slot.Tat)-g.now())) / ticksPerNano), true
}
