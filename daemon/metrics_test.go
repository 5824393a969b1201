package daemon

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/fleet"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// everything is a status in which every metric has a value.
func everything() Status {
	return Status{
		Config: ConfigStatus{OK: true, Generation: 3, Hash: strings.Repeat("ab", 32)},
		Network: NetworkStatus{
			On:         true,
			Interfaces: []Interface{{Name: "eth0", AttachMode: "native", ProgramID: 7}, {Name: "eth1", AttachMode: "none"}},
			Reasons:    []Reason{{"drop", "block", 5, 300}, {"pass", "default", 9, 540}},
			Table:      &Table{Slots: 4096, Live: 3, EvictedLive: 1, Overflowed: 2, Contended: 4},
			IPv4:       &Room{5, 100}, IPv6: &Room{6, 50},
		},
		HTTP: HTTPStatus{
			On: true, Up: true, Restarts: 2, Fleet: &l7.FleetState{State: fleet.State{Up: true, Hosts: []string{"a", "b"}}},
			Listeners: []Listener{{Address: ":80"}, {Address: ":443", CertificateEnds: time.Unix(1800000000, 0)}},
		},
		Board: &BoardStatus{Up: true, Entries: 3, Revision: 1_800_000_000_000_000},
		Rules: []Rule{
			{Name: "syn", Packets: &Verdicts{1, 2, 3}, Bytes: &Verdicts{60, 120, 180}},
			{Name: "login", Requests: &Verdicts{4, 5, 6}, Held: &limit.Held{Keys: 2, Bytes: 96, Bound: 65536, Fill: 0.5}},
			{Name: "gone", Aside: "the config has a rule of this name"},
		},
	}
}

func TestMetricsAreWellFormed(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newCollector(everything))
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(described) {
		t.Errorf("%d metrics have values, %d are described", len(families), len(described))
	}
	labels := map[string]bool{"rule": true, "verdict": true, "reason": true, "interface": true, "listener": true}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !labels[l.GetName()] {
					t.Errorf("%s has label %s", f.GetName(), l.GetName())
				}
			}
		}
	}
}

func TestMetricsHaveTheirValues(t *testing.T) {
	want := `
# HELP headgate_rule_requests_total Requests that a rule of the HTTP gate has judged.
# TYPE headgate_rule_requests_total counter
headgate_rule_requests_total{rule="login",verdict="passed"} 4
headgate_rule_requests_total{rule="login",verdict="refused"} 5
headgate_rule_requests_total{rule="login",verdict="watched"} 6
# HELP headgate_rule_keys_bytes Memory that they take.
# TYPE headgate_rule_keys_bytes gauge
headgate_rule_keys_bytes{rule="login"} 96
# HELP headgate_rule_keys_fill_ratio How full it is: at 1 a new key of the rule makes another give way.
# TYPE headgate_rule_keys_fill_ratio gauge
headgate_rule_keys_fill_ratio{rule="login"} 0.5
# HELP headgate_interface_attached Whether the network gate's program is attached.
# TYPE headgate_interface_attached gauge
headgate_interface_attached{interface="eth0"} 1
headgate_interface_attached{interface="eth1"} 0
# HELP headgate_packets_total Packets by verdict and its one reason.
# TYPE headgate_packets_total counter
headgate_packets_total{reason="block",verdict="drop"} 5
headgate_packets_total{reason="default",verdict="pass"} 9
# HELP headgate_config_hash First 48 bits of the hash of the config in force.
# TYPE headgate_config_hash gauge
headgate_config_hash 1.88751807064e+14
# HELP headgate_http_certificate_end_timestamp_seconds When the first certificate of a listener with TLS ends.
# TYPE headgate_http_certificate_end_timestamp_seconds gauge
headgate_http_certificate_end_timestamp_seconds{listener=":443"} 1.8e+09
# HELP headgate_rules_aside Rules from the command line that are not in force.
# TYPE headgate_rules_aside gauge
headgate_rules_aside 1
`
	want = strings.Replace(want, "1.88751807064e+14", fmt.Sprint(float64(0xabababababab)), 1)
	err := testutil.CollectAndCompare(newCollector(everything), strings.NewReader(want),
		"headgate_rule_requests_total", "headgate_rule_keys_bytes", "headgate_rule_keys_fill_ratio", "headgate_interface_attached", "headgate_packets_total", "headgate_config_hash",
		"headgate_http_certificate_end_timestamp_seconds", "headgate_rules_aside")
	if err != nil {
		t.Error(err)
	}
}

func TestAdminAddress(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}\nrules: [{name: login, match: {path: /login}, per: client, limit: 5/min}]", address, upstream(t)))
	s := httptest.NewServer(b.d.adminHandler())
	defer s.Close()
	for path, has := range map[string]string{
		"/healthz": "alive",
		"/readyz":  "ready",
		"/metrics": `headgate_rule_requests_total{rule="login",verdict="passed"} 0`,
	} {
		if code, text := fetch(t, s.URL+path); code != 200 || !strings.Contains(text, has) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	child := b.d.http.child
	child.end()
	<-child.exited
	b.d.http.bury(child)
	if code, text := fetch(t, s.URL+"/readyz"); code != 503 || !strings.Contains(text, "the HTTP gate is down") {
		t.Errorf("/readyz without the HTTP gate: %d %s", code, text)
	}
	if code, _ := fetch(t, s.URL+"/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	if _, text := fetch(t, s.URL+"/metrics"); !strings.Contains(text, "headgate_http_up 0") {
		t.Error("headgate_http_up is not 0")
	}
	b.write(t, "version: 2")
	b.d.reload(t.Context(), false)
	if _, text := fetch(t, s.URL+"/metrics"); !strings.Contains(text, "headgate_config_last_reload_ok 0") {
		t.Error("headgate_config_last_reload_ok is not 0")
	}
}
