package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/rig"
)

// seenHost limits two sources, of which one asks for ten times what it may.
func seenHost(t *testing.T) *host {
	h := newHost(t, `
network: {interfaces: [IFACE]}
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: 100/s, burst: 100}
  - {name: tries, match: {protocol: udp, ports: [9001]}, per: source, rate: 1/min, burst: 1, mode: watch}
`)
	h.start()
	return h
}

// RC-098: top tells of each source what passed and what was dropped, by which
// rule, and until when its bucket is short, while the traffic still goes on.
// RC-037: who is limited is named there, and in no metric.
func TestTopTellsOfSources(t *testing.T) {
	h := seenHost(t)
	greedy, modest := h.packet("203.0.113.5", 9000), h.packet("203.0.113.6", 9000)
	tries := h.packet("2001:db8:7::1", 9001)
	wait := h.flow(1000, 3*time.Second, greedy)
	waitModest := h.flow(20, 3*time.Second, modest)
	waitTries := h.flow(20, 3*time.Second, tries)
	var rows map[string]daemon.TopRow
	h.await("top tells of all three", func() bool {
		var top daemon.Top
		if err := json.Unmarshal([]byte(h.do("top", "--window", "1m", "-o", "json")), &top); err != nil {
			t.Fatal(err)
		}
		rows = map[string]daemon.TopRow{}
		for _, r := range top.Rows {
			rows[r.Rule+" "+r.Source.String()] = r
		}
		return rows["game 203.0.113.5/32"].Refused > 100 && rows["game 203.0.113.6/32"].Passed > 5 && rows["tries 2001:db8:7::/64"].Watched > 5
	})
	if r := rows["game 203.0.113.5/32"]; r.Passed == 0 || r.FullIn <= 0 || r.FullIn > 1.1 || r.Bytes < 42*r.Refused {
		t.Errorf("of the greedy source: %+v", r)
	}
	if r := rows["game 203.0.113.6/32"]; r.Refused != 0 || r.FullIn > 0.1 {
		t.Errorf("of the modest source: %+v", r)
	}
	sent := wait().Packets + waitModest().Packets + waitTries().Packets
	h.await("the counts are those of the rules", func() bool {
		var top daemon.Top
		if err := json.Unmarshal([]byte(h.do("top", "--window", "1m", "-o", "json")), &top); err != nil {
			t.Fatal(err)
		}
		counted := uint64(0)
		for _, r := range top.Rows {
			if r.Rule != "" {
				counted += r.Passed + r.Refused + r.Watched
			}
		}
		return counted >= sent*95/100 && counted <= sent
	})
}

// events -f tells of refusals as they come, of one rule if asked, and a flood of
// sources makes few lines.
func TestEventsAsTheyCome(t *testing.T) {
	h := seenHost(t)
	cmd := rig.Command(h.net.Gate, binary, "events", "-f", "--rule", "game", "-o", "json", "-c", h.config())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := make(chan daemon.Event, 10000)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			var e daemon.Event
			if json.Unmarshal(in.Bytes(), &e) == nil {
				lines <- e
			}
		}
	}()
	flood := rig.Pour(t, h.link, netip.MustParseAddr("203.0.113.5"), 200, 9000, 100_000)
	count, sources, told := uint64(0), map[netip.Addr]bool{}, 0
	for count < 50_000 {
		select {
		case e := <-lines:
			told++
			count += e.Count
			sources[e.Source] = true
			if e.Rule != "game" || e.What != daemon.EventRefused || e.Reason != "over_rate" || e.Protocol != 17 || e.Port != 9000 {
				t.Errorf("event %+v", e)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d events of %d packets came", told, count)
		}
	}
	flood.Stop(t)
	if len(sources) < 2 {
		t.Errorf("events of %d sources", len(sources))
	}
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C ends in %v", err)
	}
	all := h.do("events")
	if !strings.Contains(all, "refused by game") || !strings.Contains(all, "udp/9000") {
		t.Errorf("events:\n%.1000s", all)
	}
	if n := strings.Count(all, "\n"); n > 2048 {
		t.Errorf("%d events are kept", n)
	}
}

// A capture holds dropped frames as they were, each with the rule and the reason,
// and nothing that passed; at a flood it is bounded and says what is not in it.
func TestCaptureOfDrops(t *testing.T) {
	h := seenHost(t)
	wait := h.flow(500, 2*time.Second, h.packet("203.0.113.5", 9000))
	waitOther := h.flow(50, 2*time.Second, h.packet("203.0.113.6", 9000))
	file := filepath.Join(t.TempDir(), "drops.pcapng")
	said := h.do("capture", "--drops", "-w", file, "--packets", "50", "--for", "1m")
	wait()
	waitOther()
	if !strings.Contains(said, "captured 50 frames") {
		t.Errorf("it says %q", said)
	}
	frames := readCapture(t, file)
	if len(frames) != 50 {
		t.Fatalf("%d frames", len(frames))
	}
	for _, f := range frames {
		p := gopacket.NewPacket(f.data, layers.LinkTypeEthernet, gopacket.Default)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if ip == nil || udp == nil || ip.SrcIP.String() != "203.0.113.5" || udp.DstPort != 9000 || !strings.HasPrefix(f.comment, "dropped by rule game: over_rate") || f.device != h.link.Gate.Interface {
			t.Fatalf("on %s, %q: %v", f.device, f.comment, p)
		}
	}
	if tshark, err := exec.LookPath("tshark"); err != nil {
		t.Log("what tshark reads is not looked at: it is missing (deploy/packages test)")
	} else {
		out, err := exec.Command(tshark, "-r", file, "-Y", `frame.comment contains "rule game"`).CombinedOutput()
		if n := strings.Count(string(out), " UDP "); err != nil || n != 50 {
			t.Errorf("tshark shows %d frames with the comment, %v:\n%.500s", n, err, out)
		}
	}

	// interrupted in a flood, the file still reads
	flood := rig.Pour(t, h.link, netip.MustParseAddr("203.0.113.7"), 4, 9000, 100_000)
	cmd := rig.Command(h.net.Gate, binary, "capture", "--drops", "-w", file, "-c", h.config())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	await.For(t, "frames are captured", func() bool {
		s, err := os.Stat(file)
		return err == nil && s.Size() > 20_000 // more than before
	})
	h.exits(1, []string{"another capture is going on"}, "capture", "--drops", "-w", os.DevNull)
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C ends in %v", err)
	}
	sent := flood.Stop(t).Total()
	if n := uint64(len(readCapture(t, file))); n == 0 || n > sent/4 {
		t.Errorf("%d of %d frames are captured", n, sent)
	}
}

type capturedFrame struct {
	data            []byte
	comment, device string
}

func readCapture(t *testing.T, file string) (all []capturedFrame) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, info, options, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("after %d frames: %v", len(all), err)
		}
		device, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, capturedFrame{data, strings.Join(options.Comments, "; "), device.Name})
	}
}

// pty makes a pseudoterminal of the given size, pts(4).
func pty(t *testing.T, columns, rows uint16) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudoterminals: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	fd := int(ours.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// On a terminal top is a screen: it shows who is heaviest, blocks whom its user
// picks once he says yes, and leaves the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	h := seenHost(t)
	ours, theirs := pty(t, 80, 24)
	before, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	flood := rig.Pour(t, h.link, netip.MustParseAddr("203.0.113.5"), 1, 9000, 10_000)
	cmd := rig.Command(h.net.Gate, binary, "top", "-c", h.config())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var mu sync.Mutex
	var text strings.Builder
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			mu.Lock()
			text.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	shows := func(what string) {
		t.Helper()
		h.await("the screen shows "+what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(text.String(), what)
		})
	}
	press := func(keys string) {
		t.Helper()
		mu.Lock()
		text.Reset()
		mu.Unlock()
		if _, err := ours.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	shows("headgate top: last 10s, by refused")
	shows("203.0.113.5")
	shows("q quit")
	press("b")
	shows("block 203.0.113.5 for 10m? y/n")
	press("y")
	shows("blocked 203.0.113.5 for ")
	if out := h.do("blocks"); !strings.Contains(out, "203.0.113.5") || !strings.Contains(out, "by hand, from top") {
		t.Errorf("blocks:\n%s", out)
	}
	press("s")
	shows("by passed")
	flood.Stop(t)
	press("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("q ends in %v", err)
	}
	shows("\x1b[?1049l")
	after, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is left as %+v, %v; it was %+v", after, err, before)
	}
}

// What docs/seeing.md says to type does what it says.
func TestDocumentedSeeing(t *testing.T) {
	h := newHost(t, "network: {interfaces: [IFACE]}\nrules: [{name: per-source, per: source, rate: 10/s, burst: 10}]\n")
	h.start()
	doc, err := os.ReadFile("../../docs/seeing.md")
	if err != nil {
		t.Fatal(err)
	}
	flood := rig.Pour(t, h.link, netip.MustParseAddr("203.0.113.5"), 2, 9000, 5000)
	h.await("something is refused", func() bool { return h.rule("per-source").Packets.Refused > 100 })
	h.await("it is known", func() bool { return strings.Contains(h.do("top", "--once"), "203.0.113.5") })
	says := map[string]string{"top": "203.0.113.6", "block": "covers 2 sources", "events": "refused by per-source", "capture": "captured "}
	for line := range strings.Lines(string(doc)) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "    headgate ") {
			continue
		}
		cmd := rig.Command(h.net.Gate, binary, append(words[1:], "-c", h.config())...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), says[words[1]]) {
			t.Errorf("%s: %v, and not %q:\n%.500s", strings.TrimSpace(line), err, says[words[1]], out)
		}
		delete(says, words[1])
	}
	flood.Stop(t)
	if len(says) > 0 {
		t.Errorf("the document shows nothing of %v", says)
	}
}
