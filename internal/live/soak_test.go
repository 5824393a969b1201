package live

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// soak is how long a flood of random sources lasts: half a second with the other
// tests, the 30 s of RC-012 in `make soak`.
var soak = flag.Duration("soak", 500*time.Millisecond, "how long a flood of random sources lasts; from 10s on with a table of 131072 slots")

// floodSize is what a flood is held against.
type floodSize struct {
	slots   int
	unknown float64 // packets a second that unknown sources get together; a second's worth at once
	slow    string  // figures of the rule that fills the table
	rate    float64 // packets a second that the flood must reach at the gate; 0: any
}

// sizes are those of RC-012, which has a table of 100 000: the next power of
// two is 131072. The slow rule keeps a source's bucket alive for 20 s, so that
// live ones outnumber the slots.
func sizes() floodSize {
	if *soak >= 10*time.Second {
		return floodSize{131072, 10000, "rate: 3/min, burst: 2", 200_000}
	}
	return floodSize{4096, 5000, "rate: 1/s, burst: 2", 0}
}

const (
	floodSources = 1 << 21 // the 2 M of RC-012
	floodRate    = 300_000 // packets a second
	heavy, good  = "203.0.113.66", "203.0.113.9"
)

// RC-012: random sources flood one interface, at sizes() and for *soak, while a
// heavy source and a good client come by another; buckets belong to the host.
// The heavy one never gets more than burst + rate·T, the good one, which is
// vouched for, loses nothing, sources nobody knows get their cap together, and
// afterwards the table empties by itself. The flood has an interface of its own
// so that no packet of the others is lost in its full ring, before the gate.
func TestSoakRandomSources(t *testing.T) {
	for _, c := range []struct {
		name    string
		sources rig.Sources
	}{
		{"IPv4", rig.Sources{First: netip.MustParseAddr("100.0.0.0"), Count: floodSources, Bits: 32}},
		{"a /64 each", rig.Sources{First: netip.MustParseAddr("2001:db8::"), Count: floodSources, Bits: 64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSoak(t)
			s.flood(c.sources, 7777)
			s.checkClients()
			s.checkUnknown()
			s.checkPressure()
			s.checkRest()
		})
	}
}

// RC-012, RC-013 at the network gate: random addresses out of one /64 are one
// source with one bucket.
func TestSoakOneNetwork(t *testing.T) {
	s := newSoak(t)
	s.flood(rig.Sources{First: netip.MustParseAddr("2001:db8:5:6::"), Count: 1 << 31, Bits: 96}, 80)
	s.checkClients()
	within(t, "the /64", s.flooded.Total().Packets, s.sent, 100, 100)
	if s.peak > 16 {
		t.Errorf("%v slots are live at most, want one for each of four sources and what vital traffic takes", s.peak)
	}
	s.checkRest()
}

// soaked is one flood and what came of it.
type soaked struct {
	*host
	size    floodSize
	clients *host // the same machine, seen from the other link

	sent, sentHeavy, sentGood rig.Sent
	judged                    float64 // packets of the flood that reached the gate
	flooded, served           rig.Report
	peak                      float64 // live slots at most, of what metrics said meanwhile
	before, after             map[string]float64
}

func newSoak(t *testing.T) *soaked {
	t.Helper()
	n := rig.Star(t, 2)
	s := &soaked{size: sizes()}
	s.host = newHostOn(t, n, fmt.Sprintf(`
network: {interfaces: [%s, %s], slots: %d}
rules:
  - {name: all, per: source, rate: 100/s, burst: 100, unknown: %g/s}
  - {name: slow, match: {protocol: udp, ports: [7777]}, per: source, %s}
`, n.Links[0].Gate.Interface, n.Links[1].Gate.Interface, s.size.slots, s.size.unknown, s.size.slow))
	s.rewrite("listen: off", "listen: 127.0.0.1:9317")
	s.clients = &host{t: t, net: n, link: n.Links[1]}
	for _, l := range n.Links {
		if err := l.StaticNeighbours(); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	s.do("vouch", good, "--for", "1h")
	return s
}

// flood floods the first link from sources while the clients send.
func (s *soaked) flood(sources rig.Sources, port uint16) {
	s.t.Helper()
	f, err := rig.NewFlood(s.link, s.link.UDP(sources.First, port), sources)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	flooded, served := rig.Receive(s.t, s.link), rig.Receive(s.t, s.clients.link)
	s.before = s.metrics()
	waitHeavy := s.clients.flow(5000, *soak+500*time.Millisecond, s.packet(heavy, 80))
	waitGood := s.clients.flow(50, *soak+500*time.Millisecond, s.packet(good, 80))
	s.await("the heavy source to be refused", func() bool { return s.metrics()[refused("all")] > s.before[refused("all")] })
	done := make(chan error, 1)
	go func() {
		var err error
		s.sent, err = f.Run(s.t.Context(), floodRate, *soak)
		done <- err
	}()
	for flooding := true; flooding; {
		select {
		case err := <-done:
			if err != nil {
				s.t.Fatal(err)
			}
			flooding = false
		case <-time.After(100 * time.Millisecond):
			s.peak = max(s.peak, s.metrics()["headgate_table_live_slots"])
		}
	}
	s.sentHeavy, s.sentGood = waitHeavy(), waitGood()
	s.flooded, s.served = flooded.Stop(s.t), served.Stop(s.t)
	s.after = s.metrics()
	s.judged = s.moved(passed("all")) + s.moved(refused("all")) - float64(s.sentHeavy.Packets+s.sentGood.Packets)
	s.t.Logf("%.0f packets of the flood were judged in %v, %.0f/s; at most %.0f slots live, %.0f evicted live, %.0f packets overflowed",
		s.judged, s.sent.Elapsed(), s.judged/s.sent.Elapsed().Seconds(), s.peak, s.moved("headgate_table_evicted_live_total"), s.moved("headgate_table_overflowed_packets_total"))
	if least := s.size.rate * s.sent.Elapsed().Seconds(); s.judged < least {
		s.t.Fatalf("the flood is too slow to show anything: %.0f packets reached the gate in %v, want %.0f", s.judged, s.sent.Elapsed(), least)
	}
}

// checkClients holds the heavy source and the good client to their due.
func (s *soaked) checkClients() {
	s.t.Helper()
	within(s.t, "the heavy source", s.served.From(netip.MustParseAddr(heavy)).Packets, s.sentHeavy, 100, 100)
	if got := s.served.From(netip.MustParseAddr(good)); got.Packets != s.sentGood.Packets || got.Missing != 0 {
		s.t.Errorf("the good client: %d of %d packets delivered", got.Packets, s.sentGood.Packets)
	}
}

// checkUnknown holds the flood to its cap. A source is unknown until it has got
// a packet through, so as many sources as the cap has packets get through; what
// these send while the table remembers them is charged to their own buckets. It
// remembers no more of them than it has slots.
func (s *soaked) checkUnknown() {
	s.t.Helper()
	const queued = 50 * time.Millisecond // as in within
	most := s.size.unknown * (1 + (s.sent.Elapsed() + queued).Seconds())
	if got := float64(len(s.flooded.Flows)); got > most || got < most/2 {
		s.t.Errorf("%.0f sources got through in %v, the cap is %.0f", got, s.sent.Elapsed(), most)
	}
	known := 1.1 * s.judged * float64(s.size.slots) / floodSources
	if got := float64(s.flooded.Total().Packets); got > most+known {
		s.t.Errorf("%.0f packets of %.0f got through, want at most %.0f of unknown sources and %.0f of known ones", got, s.judged, most, known)
	}
	if s.judged < 2*(most+known) {
		s.t.Errorf("the flood is too slow to show anything: %.0f packets for a cap of %.0f", s.judged, most+known)
	}
}

// checkPressure wants the metrics to show what the table went through.
func (s *soaked) checkPressure() {
	s.t.Helper()
	if s.peak < float64(s.size.slots)/2 {
		s.t.Errorf("at most %.0f of %d slots live: the flood put no pressure on the table, or the metric does not show it", s.peak, s.size.slots)
	}
	if s.moved("headgate_table_evicted_live_total") == 0 {
		s.t.Error("more live buckets than slots, and no eviction is counted")
	}
}

// checkRest wants the table empty, and a stranger served, within a minute.
func (s *soaked) checkRest() {
	s.t.Helper()
	live := -1.0
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && (live < 0 || live > 16); time.Sleep(100 * time.Millisecond) {
		live = s.metrics()["headgate_table_live_slots"]
	}
	if live > 16 {
		s.t.Errorf("%.0f slots are live a minute after the flood", live)
	}
	r := rig.Receive(s.t, s.clients.link)
	sent := s.clients.flow(50, 400*time.Millisecond, s.packet("203.0.113.77", 7777+1))()
	if got := r.Stop(s.t).From(netip.MustParseAddr("203.0.113.77")); got.Packets != sent.Packets {
		s.t.Errorf("after the flood %d of %d packets of a new client were delivered", got.Packets, sent.Packets)
	}
}

func passed(rule string) string  { return ruleMetric(rule, "passed") }
func refused(rule string) string { return ruleMetric(rule, "refused") }

func ruleMetric(rule, verdict string) string {
	return fmt.Sprintf(`headgate_rule_packets_total{rule=%q,verdict=%q}`, rule, verdict)
}

// moved is by how much a metric grew.
func (s *soaked) moved(name string) float64 { return s.after[name] - s.before[name] }

// metrics asks /metrics and returns the values by name and labels.
func (h *host) metrics() map[string]float64 {
	h.t.Helper()
	client := rig.HTTPClient(h.net.Gate, netip.Addr{})
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://127.0.0.1:9317/metrics")
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if value != "" {
			name += "}"
		} else {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all
}
