package daemon

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/daemon/attachments"
	"github.com/headgate/headgate/l7"
)

// collector turns one snapshot into metrics. Labels are rules, reasons and
// interfaces (and the few verdicts), never an address or a key, so the number
// of series is bounded by the config.
type collector struct {
	look func() Status
	desc map[string]*prometheus.Desc
}

// metric names, their help and their labels.
var described = []struct {
	name, help string
	labels     []string
}{
	{"headgate_rule_packets_total", "Packets that a rule of the network gate has judged.", []string{"rule", "verdict"}},
	{"headgate_rule_bytes_total", "Frame bytes that a rule of the network gate has judged.", []string{"rule", "verdict"}},
	{"headgate_rule_requests_total", "Requests that a rule of the HTTP gate has judged.", []string{"rule", "verdict"}},
	{"headgate_rule_over_requests_total", "Requests that passed above the line of a rule, in its soft part.", []string{"rule"}},
	{"headgate_packets_total", "Packets by verdict and its one reason.", []string{"verdict", "reason"}},
	{"headgate_packet_bytes_total", "Frame bytes by verdict and its one reason.", []string{"verdict", "reason"}},
	{"headgate_interface_attached", "Whether the network gate's program is attached.", []string{"interface"}},
	{"headgate_interface_native", "Whether it is attached in native mode.", []string{"interface"}},
	{"headgate_interface_repairs_total", "Times that something of the network gate that others took away was put back.", []string{"reason"}},
	{"headgate_pins_survive", "Whether what is pinned, and with it the filter, outlives the daemon's container.", nil},
	{"headgate_table_slots", "Places in the bucket table.", nil},
	{"headgate_table_live_slots", "Places whose bucket is not full.", nil},
	{"headgate_table_evicted_live_total", "Buckets that lost their place while not full.", nil},
	{"headgate_table_overflowed_packets_total", "Packets charged to an overflow bucket because no place was free.", nil},
	{"headgate_table_contended_packets_total", "Packets that lost a race for a place too often.", nil},
	{"headgate_table_undo_failed_total", "Charges left standing though a later limit refused.", nil},
	{"headgate_table_recharged_total", "Charges that met a place that was just lost.", nil},
	{"headgate_ipv4_prefixes", "IPv4 prefixes of rules and lists that the network gate holds.", nil},
	{"headgate_ipv4_prefixes_bound", "IPv4 prefixes that it may hold.", nil},
	{"headgate_ipv6_prefixes", "IPv6 prefixes of rules and lists that the network gate holds.", nil},
	{"headgate_ipv6_prefixes_bound", "IPv6 prefixes that it may hold.", nil},
	{"headgate_network_open", "Whether the network gate was opened to everything by hand.", nil},
	{"headgate_map_repairs_total", "Entries of the pinned maps that others had changed and that were put right.", nil},
	{"headgate_config_on_trial", "Whether the config in force is on trial.", nil},
	{"headgate_config_last_reload_ok", "Whether what is on disk is in force.", nil},
	{"headgate_config_generation", "Configs put in force since the start.", nil},
	{"headgate_config_hash", "First 48 bits of the hash of the config in force.", nil},
	{"headgate_rules_aside", "Rules from the command line that are not in force.", nil},
	{"headgate_blocks", "Prefixes that are blocked.", nil},
	{"headgate_allows", "Prefixes that are allowed.", nil},
	{"headgate_lists_prefixes", "Prefixes of all lists of the config.", nil},
	{"headgate_lists_oldest_seconds", "Time since the source of a list was last read, of the list where that is longest.", nil},
	{"headgate_lists_failing", "Lists whose last try to be read failed: what they held before is in force.", nil},
	{"headgate_http_up", "Whether the HTTP gate's process is up.", nil},
	{"headgate_http_restarts_total", "Times that the HTTP gate's process died.", nil},
	{"headgate_http_certificate_end_timestamp_seconds", "When the first certificate of a listener with TLS ends.", []string{"listener"}},
	{"headgate_http_keys", "Bucket keys that the HTTP gate keeps.", nil},
	{"headgate_http_keys_bytes", "Memory that they take.", nil},
	{"headgate_http_keys_bytes_bound", "Memory that they may take.", nil},
	{"headgate_http_keys_fill_ratio", "How full the fullest part of it is: at 1 a new key makes another give way.", nil},
	{"headgate_rule_keys", "Bucket keys that the HTTP gate keeps of a rule.", []string{"rule"}},
	{"headgate_rule_keys_bytes", "Memory that they take.", []string{"rule"}},
	{"headgate_rule_keys_bytes_bound", "Memory that they may take: the rule's own bound, or the part of all memory for rules that count alike.", []string{"rule"}},
	{"headgate_rule_keys_fill_ratio", "How full it is: at 1 a new key of the rule makes another give way.", []string{"rule"}},
	{"headgate_http_evicted_keys_total", "Bucket keys in use that gave way to others.", nil},
	{"headgate_http_overflowed_requests_total", "Charges to a rule's shared bucket because its key found no room.", nil},
	{"headgate_http_ended_connections_total", "Connections ended without an answer, by reason.", []string{"reason"}},
	{"headgate_http_faults_total", "Requests that met a fault of the HTTP gate itself.", nil},
	{"headgate_fleet_up", "Whether limits are counted with the other hosts of the fleet.", nil},
	{"headgate_fleet_hosts", "Hosts of the fleet that are alive, this one included.", nil},
	{"headgate_fleet_calls", "Calls to Redis by the HTTP gate's process that runs.", nil},
	{"headgate_fleet_questions", "Decisions that asked Redis, by the HTTP gate's process that runs.", nil},
	{"headgate_fleet_entries", "Blocks, allows, rules and overrides for all hosts that are in force.", nil},
	{"headgate_fleet_entries_up", "Whether this host learns of what is added for all hosts.", nil},
	{"headgate_fleet_revision", "Version up to which this host knows what holds on all hosts: microseconds since 1970, by Redis.", nil},
	{"headgate_fleet_late", "Of those, decided without its answer.", nil},
	{"headgate_http_access_log_lost_lines_total", "Lines of the access log that were not written: the disk was full or slow.", nil},
}

func newCollector(look func() Status) *collector {
	c := &collector{look: look, desc: map[string]*prometheus.Desc{}}
	for _, m := range described {
		c.desc[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	return c
}

// Describe sends all descriptions.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.desc {
		out <- d
	}
}

// Collect takes one snapshot and sends what it holds.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	st := c.look()
	count := func(name string, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(c.desc[name], prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(name string, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(c.desc[name], prometheus.GaugeValue, v, labels...)
	}
	gauge("headgate_config_last_reload_ok", oneIf(st.Config.OK))
	gauge("headgate_config_on_trial", oneIf(st.Trial != nil))
	gauge("headgate_network_open", oneIf(st.Network.Opened))
	count("headgate_map_repairs_total", st.Network.MapRepairs)
	gauge("headgate_config_generation", float64(st.Config.Generation))
	gauge("headgate_config_hash", hashValue(st.Config.Hash))
	gauge("headgate_blocks", float64(st.Blocks))
	gauge("headgate_allows", float64(st.Allows))
	gauge("headgate_http_up", oneIf(st.HTTP.Up))
	count("headgate_http_restarts_total", st.HTTP.Restarts)
	for _, reason := range l7.EndReasons {
		count("headgate_http_ended_connections_total", st.HTTP.Ended[string(reason)], string(reason))
	}
	count("headgate_http_faults_total", st.HTTP.Faults)
	if f := st.HTTP.Fleet; f != nil {
		gauge("headgate_fleet_up", oneIf(f.Up))
		gauge("headgate_fleet_hosts", float64(len(f.Hosts)))
		gauge("headgate_fleet_calls", float64(f.Calls))
		gauge("headgate_fleet_questions", float64(f.Asked))
		gauge("headgate_fleet_late", float64(f.Late))
	}
	if b := st.Board; b != nil {
		gauge("headgate_fleet_entries", float64(b.Entries))
		gauge("headgate_fleet_entries_up", oneIf(b.Up))
		gauge("headgate_fleet_revision", float64(b.Revision))
	}
	count("headgate_http_access_log_lost_lines_total", st.HTTP.LostLines)
	gauge("headgate_http_keys", float64(st.HTTP.Buckets.Keys))
	gauge("headgate_http_keys_bytes", float64(st.HTTP.Buckets.Bytes))
	gauge("headgate_http_keys_bytes_bound", float64(st.HTTP.Buckets.Bound))
	gauge("headgate_http_keys_fill_ratio", st.HTTP.Buckets.Fill)
	count("headgate_http_evicted_keys_total", st.HTTP.Buckets.Evicted)
	count("headgate_http_overflowed_requests_total", st.HTTP.Buckets.Overflowed)
	for _, l := range st.HTTP.Listeners {
		if !l.CertificateEnds.IsZero() {
			gauge("headgate_http_certificate_end_timestamp_seconds", float64(l.CertificateEnds.Unix()), l.Address)
		}
	}
	aside := 0
	for _, r := range st.Rules {
		if r.Aside != "" {
			aside++
			continue
		}
		for name, v := range map[string]*Verdicts{"packets": r.Packets, "bytes": r.Bytes, "requests": r.Requests} {
			if v == nil {
				continue
			}
			count("headgate_rule_"+name+"_total", v.Passed, r.Name, "passed")
			count("headgate_rule_"+name+"_total", v.Refused, r.Name, "refused")
			count("headgate_rule_"+name+"_total", v.Watched, r.Name, "watched")
		}
		if r.Requests != nil {
			count("headgate_rule_over_requests_total", r.Over, r.Name)
		}
		if h := r.Held; h != nil {
			gauge("headgate_rule_keys", float64(h.Keys), r.Name)
			gauge("headgate_rule_keys_bytes", float64(h.Bytes), r.Name)
			gauge("headgate_rule_keys_bytes_bound", float64(h.Bound), r.Name)
			gauge("headgate_rule_keys_fill_ratio", h.Fill, r.Name)
		}
	}
	gauge("headgate_rules_aside", float64(aside))
	for _, r := range st.Network.Reasons {
		count("headgate_packets_total", r.Packets, r.Verdict, r.Reason)
		count("headgate_packet_bytes_total", r.Bytes, r.Verdict, r.Reason)
	}
	for _, i := range st.Network.Interfaces {
		gauge("headgate_interface_attached", oneIf(i.ProgramID != 0), i.Name)
		gauge("headgate_interface_native", oneIf(i.ProgramID != 0 && i.AttachMode == "native"), i.Name)
	}
	for _, kind := range attachments.RepairKinds() {
		count("headgate_interface_repairs_total", st.Network.Repaired[kind], kind)
	}
	gauge("headgate_pins_survive", oneIf(st.Network.PinsEnd == ""))
	held, oldest, failing := 0, int64(0), 0.0
	for _, l := range st.Lists {
		held, oldest, failing = held+l.Prefixes, max(oldest, l.Age), failing+oneIf(l.Error != "")
	}
	gauge("headgate_lists_prefixes", float64(held))
	gauge("headgate_lists_oldest_seconds", float64(oldest))
	gauge("headgate_lists_failing", failing)
	for family, r := range map[string]*Room{"ipv4": st.Network.IPv4, "ipv6": st.Network.IPv6} {
		if r != nil {
			gauge("headgate_"+family+"_prefixes", float64(r.Held))
			gauge("headgate_"+family+"_prefixes_bound", float64(r.Bound))
		}
	}
	if t := st.Network.Table; t != nil {
		gauge("headgate_table_slots", float64(t.Slots))
		gauge("headgate_table_live_slots", float64(t.Live))
		count("headgate_table_evicted_live_total", t.EvictedLive)
		count("headgate_table_overflowed_packets_total", t.Overflowed)
		count("headgate_table_contended_packets_total", t.Contended)
		count("headgate_table_undo_failed_total", t.UndoFailed)
		count("headgate_table_recharged_total", t.Recharged)
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// hashValue is the part of the hash that a float64 holds exactly.
func hashValue(hash string) float64 {
	b, err := hex.DecodeString(hash)
	if err != nil || len(b) < 6 {
		return 0
	}
	var n uint64
	for _, x := range b[:6] {
		n = n<<8 | uint64(x)
	}
	return float64(n)
}

// listenAdmin opens the address of metrics and health; none for an empty one.
func listenAdmin(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open admin.listen: %w (name another address, or `off`)", err)
	}
	return ln, nil
}

// adminHandler answers /metrics, /healthz (the daemon lives) and /readyz (both
// gates do what the config says; else 503 and why).
func (d *daemon) adminHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(func() Status { return d.snapshot(context.Background()) }))
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		st := d.snapshot(r.Context())
		if !st.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, strings.Join(st.Faults, "\n"))
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return m
}
