package packets

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	xdpDrop = 1
	xdpPass = 2

	// most is what a test run puts into the first buffer at most, less what
	// the kernel keeps of a page: 3520 bytes on amd64.
	most = 3000
)

// ErrCannotForm says that this kernel's test runs can't make a frame that ends
// its first buffer early.
var ErrCannotForm = errors.New("test runs here fill the first buffer (newer kernels need not)")

// Judge sends one frame, with linear bytes of it in the first buffer (0: as
// many as the kernel puts there), through one of the gate's programs and
// returns the reason that was counted. It is an error if not exactly one
// reason was counted once with the bytes that the program must see, or if the
// verdict is not the reason's.
func Judge(g Gate, frame []byte, linear int, frags bool) (string, error) {
	before, err := g.Counts()
	if err != nil {
		return "", err
	}
	verdict, err := send(g.Program(frags), frame, linear)
	if err != nil {
		return "", err
	}
	after, err := g.Counts()
	if err != nil {
		return "", err
	}
	counted, err := difference(before, after)
	if err != nil {
		return "", err
	}
	if verdict != counted.Verdict {
		return "", fmt.Errorf("verdict %s with reason %s, which is a %s", verdict, counted.Reason, counted.Verdict)
	}
	if want, known := seen(len(frame), linear, frags); known && counted.Bytes != want {
		return "", fmt.Errorf("%s counted %d bytes, want %d", counted.Reason, counted.Bytes, want)
	}
	return counted.Reason, nil
}

// seen is how long a frame is for the program, and whether that is the same on
// every kernel.
func seen(length, linear int, frags bool) (uint64, bool) {
	switch {
	case frags || linear == 0 && length <= most:
		return uint64(length), true
	case linear != 0 && linear <= most:
		return uint64(min(length, linear)), true
	}
	return 0, false
}

// xdpContext is struct xdp_md. The end of data sets how much lies in the first
// buffer.
type xdpContext struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

func send(p *ebpf.Program, frame []byte, linear int) (verdict string, err error) {
	o := &ebpf.RunOptions{Data: frame}
	if linear != 0 {
		o.Context = &xdpContext{DataEnd: uint32(linear)}
	}
	ret, err := p.Run(o)
	switch {
	case linear != 0 && errors.Is(err, unix.EINVAL):
		return "", ErrCannotForm
	case err != nil:
		return "", fmt.Errorf("run the program: %w", err)
	case ret == xdpPass:
		return "pass", nil
	case ret == xdpDrop:
		return "drop", nil
	}
	return "", fmt.Errorf("verdict %d", ret)
}

// difference is the one count by which after is more than before.
func difference(before, after []Count) (d Count, err error) {
	for i, c := range after {
		packets := c.Packets - before[i].Packets
		switch {
		case packets == 0:
			continue
		case packets > 1:
			return d, fmt.Errorf("one frame was counted %d times as %s", packets, c.Reason)
		case d.Reason != "":
			return d, fmt.Errorf("one frame has two reasons: %s and %s", d.Reason, c.Reason)
		}
		d = c
		d.Packets, d.Bytes = packets, c.Bytes-before[i].Bytes
	}
	if d.Reason == "" {
		return d, errors.New("the frame has no reason")
	}
	return d, nil
}

func (r *Result) add(c Case, frags bool, err error) {
	switch {
	case err == nil:
		r.Passed++
	case errors.Is(err, ErrCannotForm):
		r.NotRun++
	default:
		form := "plain program"
		if frags {
			form = "frags program"
		}
		r.Failed = append(r.Failed, fmt.Sprintf("%s (%s): %v", c.Name, form, err))
	}
}
