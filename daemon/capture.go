package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/headgate/headgate/maps"
)

const (
	// captureEvery is how often captured frames are read: the rings hold what
	// comes in twice that time.
	captureEvery = 40 * time.Millisecond
	// longestCapture ends one that its user forgot.
	longestCapture = time.Hour
	// captureLength of a frame is kept, in bytes; see bpf/types.h.
	captureLength = 256
)

// Trailers of a capture: what is in it, and what is not.
const (
	CapturedTrailer = "Headgate-Captured" // frames
	PassedByTrailer = "Headgate-Not-Captured"
	LostTrailer     = "Headgate-Lost" // frames that were overwritten before they were read
)

// captureRequest says what to capture and for how long.
type captureRequest struct {
	rule   string       // "": all drops
	within netip.Prefix // invalid: all sources
	span   time.Duration
	most   uint64 // frames; 0: no bound
}

func (q captureRequest) wants(c maps.Captured) bool {
	return (q.rule == "" || c.Rule == q.rule) && (!q.within.IsValid() || c.Source.IsValid() && q.within.Contains(c.Source))
}

// handleCapture streams dropped frames as pcapng, each with a comment.
func (d *daemon) handleCapture(m *http.ServeMux) {
	m.HandleFunc("GET /v1/capture", func(w http.ResponseWriter, r *http.Request) {
		q, err := d.parseCapture(r)
		var c *maps.Captures
		if err == nil {
			c, err = d.network.capture()
		}
		if err != nil {
			answerWith(d.log, func(*http.Request) (any, error) { return nil, err }).ServeHTTP(w, r)
			return
		}
		defer d.network.endCapture(c)
		w.Header().Set("Content-Type", "application/x-pcapng")
		for _, name := range []string{CapturedTrailer, PassedByTrailer, LostTrailer} {
			w.Header().Add("Trailer", name)
		}
		ctx, cancel := context.WithTimeout(r.Context(), q.span)
		defer cancel()
		p, err := newPcapng(w)
		if err != nil {
			return // nobody reads any more
		}
		q.run(ctx, d.network, c, p, http.NewResponseController(w))
		w.Header().Set(CapturedTrailer, strconv.FormatUint(p.written, 10))
		w.Header().Set(PassedByTrailer, strconv.FormatUint(p.stood-p.written, 10))
		w.Header().Set(LostTrailer, strconv.FormatUint(c.Lost(), 10))
	})
}

// run copies frames until ctx ends, enough are written, nobody reads or the gate
// is another.
func (q captureRequest) run(ctx context.Context, n *network, c *maps.Captures, p *pcapng, flush *http.ResponseController) {
	for p.err == nil && !q.enough(p) && n.captures(c) {
		if p.err = p.Flush(); p.err == nil {
			p.err = flush.Flush()
		}
		pause(ctx, captureEvery)
		c.Read(func(x maps.Captured) {
			if q.wants(x) && !q.enough(p) {
				p.add(x)
			}
		})
		if ctx.Err() != nil {
			break
		}
	}
	if p.err == nil {
		p.Flush()
	}
}

func (q captureRequest) enough(p *pcapng) bool { return q.most > 0 && p.written >= q.most }

func (d *daemon) parseCapture(r *http.Request) (q captureRequest, err error) {
	v := r.URL.Query()
	q.rule, q.span = v.Get("rule"), longestCapture
	if err := d.knowsRule(q.rule); err != nil {
		return q, err
	}
	if s := v.Get("within"); s != "" {
		if q.within, err = netip.ParsePrefix(s); err != nil {
			return q, badInput("within=%s: give a prefix such as 203.0.113.0/24", s)
		}
	}
	if s := v.Get("seconds"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > int(longestCapture/time.Second) {
			return q, badInput("seconds=%s: give seconds from 1 to 3600", s)
		}
		q.span = time.Duration(n) * time.Second
	}
	if s := v.Get("packets"); s != "" {
		if q.most, err = strconv.ParseUint(s, 10, 32); err != nil {
			return q, badInput("packets=%s: give a number", s)
		}
	}
	return q, nil
}

// capture begins a capture; there is one at a time.
func (n *network) capture() (*maps.Captures, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.gate == nil:
		return nil, refuse("the network gate is off: there is nothing to capture (name network.interfaces)")
	case n.capturing != nil:
		return nil, refuse("another capture is going on: wait for its end")
	}
	c, err := n.gate.Captures()
	n.capturing = c
	return c, err
}

func (n *network) endCapture(c *maps.Captures) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.capturing = nil
	c.Close()
}

// captures tells whether c still captures.
func (n *network) captures(c *maps.Captures) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gate != nil && c.Of(n.gate)
}

// pcapng writes captured frames: an interface block for each interface, a
// comment for each frame.
type pcapng struct {
	*pcapgo.NgWriter
	interfaces     map[uint32]int
	written, stood uint64
	err            error
}

func newPcapng(w io.Writer) (*pcapng, error) {
	p := &pcapng{interfaces: map[uint32]int{}}
	o := pcapgo.DefaultNgWriterOptions
	o.SectionInfo.Application = "headgate"
	var err error
	p.NgWriter, err = pcapgo.NewNgWriterInterface(w, pcapngInterface("dropped"), o)
	return p, err
}

func pcapngInterface(name string) pcapgo.NgInterface {
	i := pcapgo.DefaultNgInterface
	i.Name, i.LinkType, i.SnapLength = name, layers.LinkTypeEthernet, captureLength
	return i
}

// add writes one frame.
func (p *pcapng) add(c maps.Captured) {
	i, known := p.interfaces[c.Interface]
	if !known && p.err == nil {
		name := fmt.Sprintf("if%d", c.Interface)
		if dev, err := net.InterfaceByIndex(int(c.Interface)); err == nil {
			name = dev.Name
		}
		i, p.err = p.AddInterface(pcapngInterface(name))
		p.interfaces[c.Interface] = i
	}
	if p.err != nil {
		return
	}
	info := gopacket.CaptureInfo{Timestamp: c.At, CaptureLength: len(c.Frame), Length: int(c.Length), InterfaceIndex: i}
	p.err = p.WritePacketWithOptions(info, c.Frame, pcapgo.NgPacketOptions{Comments: []string{capturedWhy(c)}})
	p.written++
	p.stood += uint64(c.Stands)
}

// capturedWhy is the comment of a frame.
func capturedWhy(c maps.Captured) string {
	why := "dropped: " + c.Reason
	if c.Rule != "" {
		why = fmt.Sprintf("dropped by rule %s: %s", c.Rule, c.Reason)
	}
	if c.Stands > 1 {
		why += fmt.Sprintf(" (in the place of %d frames)", c.Stands)
	}
	return why
}
