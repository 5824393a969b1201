package live

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/daemon"
	"github.com/headgate/headgate/internal/rig"
)

// RC-100 on the wire: three times as much as two rules allow. Watching they
// refuse nothing, and each counts as watched what it refuses in a second run in
// which it enforces, within 2 % and what the runs' lengths differ by.
func TestWatchedOnTheWire(t *testing.T) {
	const perSecond, burst = 500, 100
	play := func(game, all string) (sent rig.Sent, delivered uint64, rules map[string]daemon.Verdicts) {
		h := newHost(t, fmt.Sprintf(`
network: {interfaces: [IFACE]}
rules:
  - {name: game, match: {protocol: udp, ports: [9000]}, per: source, rate: %d/s, burst: %d, mode: %s}
  - {name: all, gate: network, per: total, rate: %d/s, burst: %d, mode: %s}
`, perSecond, burst, game, 2*perSecond, burst, all))
		h.start()
		r := rig.Receive(t, h.link)
		other := h.packet("203.0.113.6", 9000)
		sent = h.flow(3*2*perSecond, time.Second, h.packet("203.0.113.5", 9000), other)()
		delivered = r.Stop(t).Total().Packets
		rules = map[string]daemon.Verdicts{"game": *h.rule("game").Packets, "all": *h.rule("all").Packets}
		h.kill()
		return sent, delivered, rules
	}
	watched, delivered, counts := play("watch", "watch")
	if delivered != watched.Packets || counts["game"].Refused+counts["all"].Refused != 0 {
		t.Errorf("rules that watch: %d of %d packets delivered, counted %+v", delivered, watched.Packets, counts)
	}
	for rule, admits := range map[string]float64{"game": 2 * perSecond, "all": 2 * perSecond} {
		mode := map[string]string{"game": "watch", "all": "watch"}
		mode[rule] = "enforce"
		sent, delivered, second := play(mode["game"], mode["all"])
		w, e := counts[rule], second[rule]
		if e.Refused != sent.Packets-delivered || e.Watched != 0 {
			t.Errorf("%s enforcing: %d of %d packets delivered, counted %+v", rule, delivered, sent.Packets, e)
		}
		// what more was sent and admitted in the longer of the runs
		longer := float64(sent.Packets) - float64(watched.Packets) - admits*(sent.Elapsed()-watched.Elapsed()).Seconds()
		if d := float64(e.Refused) - float64(w.Watched) - longer; d > 0.02*float64(e.Refused) || -d > 0.02*float64(e.Refused) || e.Refused < sent.Packets/2 {
			t.Errorf("%s: watched %d of %d in %v, refused %d of %d in %v", rule, w.Watched, watched.Packets, watched.Elapsed(), e.Refused, sent.Packets, sent.Elapsed())
		}
	}
}

// RC-100 at the HTTP gate: 10 a minute, and 30 requests. Watching all are
// answered 200, and as many counted as watched as are refused when it enforces.
func TestWatchedAtTheHTTPGate(t *testing.T) {
	play := func(mode string) (codes map[int]int, counts daemon.Verdicts) {
		h := newHost(t, "")
		app := upstream(t, h.net)
		h.write(`
network: {interfaces: [IFACE]}
http: {listen: "` + h.link.Gate.IPv4.String() + `:8080", upstream: ` + app + `}
rules:
  - {name: ten, per: client, limit: 10/min, mode: ` + mode + `}
  - {name: twenty, match: {path: /page}, per: total, limit: 20/min, mode: watch}
`)
		h.start()
		client := rig.HTTPClient(h.link.Peer.NS, netip.Addr{})
		defer client.CloseIdleConnections()
		codes = map[int]int{}
		for range 30 {
			code, err := get(client, "http://"+h.link.Gate.IPv4.String()+":8080/page")
			if err != nil {
				t.Fatal(err)
			}
			codes[code]++
		}
		if c := *h.rule("twenty").Requests; c.Refused != 0 || c.Passed+c.Watched != uint64(codes[http.StatusOK]) {
			t.Errorf("the rule that watches beside it counts %+v of %v", c, codes)
		}
		counts = *h.rule("ten").Requests
		h.kill()
		return codes, counts
	}
	codes, watched := play("watch")
	if codes[http.StatusOK] != 30 || watched != (daemon.Verdicts{Passed: 10, Watched: 20}) {
		t.Errorf("watching: answered %v, counted %+v", codes, watched)
	}
	codes, enforced := play("enforce")
	if codes[http.StatusOK] != 10 || codes[http.StatusTooManyRequests] != 20 || enforced != (daemon.Verdicts{Passed: 10, Refused: 20}) {
		t.Errorf("enforcing: answered %v, counted %+v", codes, enforced)
	}
}
