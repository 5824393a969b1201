package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/daemon"
)

func newStatus(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the gates do",
		Long: `Shows on one screen whether both gates do what the config says, and for each
rule what it passed, refused, and would have refused.

With the daemon dead it shows what the network gate goes on doing, read from the
pinned maps, and its exit code is 1.`,
		Example: `  headgate status
  headgate status -o json`,
		Args: cobra.NoArgs,
		RunE: work(func(cmd *cobra.Command, _ []string) error {
			return showStatus(cmd.Context(), e, false)
		}),
	}
}

// showStatus prints the screen, and what may be typed next where asked.
func showStatus(ctx context.Context, e *env, hints bool) error {
	var st daemon.Status
	err := e.ask(ctx, http.MethodGet, "/v1/status", nil, &st)
	if errors.Is(err, errNoDaemon) {
		return showPinnedStatus(e, err)
	}
	if err != nil {
		return err
	}
	if done, err := e.asJSON(st); done {
		return err
	}
	printHead(e, st)
	printAlarms(e, st)
	fmt.Fprintln(e.out)
	printRules(e, st.Rules)
	printDrops(e, st.Network.Reasons)
	printLists(e, st.Lists)
	printBoard(e, st.Board)
	for _, r := range st.Network.Repairs {
		fmt.Fprintf(e.out, "repaired at %s: %s\n", moment(r.At), strings.TrimPrefix(r.Interface+": "+r.What, ": "))
	}
	for _, f := range st.Faults {
		fmt.Fprintln(e.out, "not ready: "+f)
	}
	e.warn(append(st.Config.Warnings, st.Network.Warnings...))
	if hints {
		worst := printHeaviest(ctx, e)
		printNext(e, worst)
	}
	return nil
}

// topHint is how many of the heaviest the bare command shows.
const topHint = 5

// printHeaviest shows who is heaviest, and returns a source that is refused more
// than any other, if one is.
func printHeaviest(ctx context.Context, e *env) (worst netip.Prefix) {
	f := topFlags{window: "10s", sort: topSorts[0], most: topHint}
	t, err := fetchTop(ctx, e, f, "/v1/top?window=10")
	if err != nil || len(t.Rows) == 0 {
		return worst
	}
	fmt.Fprintln(e.out)
	table(e.out, topRows(t.Rows))
	if r := t.Rows[0]; r.Refused > 0 && r.Reason != "block" {
		worst = r.Source
	}
	return worst
}

// printNext says what may be typed next.
func printNext(e *env, worst netip.Prefix) {
	whom := "PREFIX"
	if worst.IsValid() {
		whom = address(worst)
	}
	rows := [][]string{
		{"next: headgate top", "who sends and asks most, as it goes on"},
		{"      headgate events -f", "what is refused, as it comes"},
		{"      headgate block " + whom + " --for 10m", "drop all that comes from there"},
		{"      headgate rule add NAME --help", "limit what comes too often"},
		{"      headgate blocks", "what is dropped by prefix"},
		{"      headgate undo", "take your last change back"},
		{"      headgate help", "everything else"},
	}
	fmt.Fprintln(e.out)
	table(e.out, rows)
}

func printHead(e *env, st daemon.Status) {
	ready := "ready"
	if !st.Ready {
		ready = "NOT READY"
	}
	rows := [][]string{
		{"headgate", fmt.Sprintf("%s, pid %d, since %s: %s", st.Version, st.PID, moment(st.Started), ready)},
		{"config", fmt.Sprintf("%s, generation %d", st.Config.Path, st.Config.Generation)},
		{"network", networkLine(st.Network)},
		{"http", httpLine(st.HTTP)},
		{"fleet", fleetLine(st)},
		{"lists", fmt.Sprintf("%d blocked, %d allowed", st.Blocks, st.Allows)},
	}
	table(e.out, rows)
	if !st.Config.OK {
		fmt.Fprintf(e.out, "LAST RELOAD FAILED, the config of %s stays in force:\n  %s\n",
			st.Config.Loaded.UTC().Format(time.DateTime), strings.ReplaceAll(st.Config.Error, "\n", "\n  "))
	}
}

// printAlarms shouts what must not be forgotten.
func printAlarms(e *env, st daemon.Status) {
	if st.Network.Opened {
		fmt.Fprintln(e.out, "THE NETWORK GATE IS OPEN TO EVERYTHING: nothing is dropped by it; `headgate panic --off` closes it")
	}
	if st.Network.Leashed {
		fmt.Fprintln(e.out, "NO DAEMON HAS BEEN SEEN FOR THE LEASH: the network gate lets everything pass until one is back (headgate run)")
	}
	if n := st.Network; n.MapRepairs > 0 {
		fmt.Fprintf(e.out, "others changed the pinned maps: %d entries were put right, the last at %s\n", n.MapRepairs, moment(n.MapsRepaired))
	}
	if t := st.Trial; t != nil {
		fmt.Fprintf(e.out, "ON TRIAL: %s, by %s, rolled back in %s: `headgate confirm` keeps it\n", t.File, firstOf(t.By, "someone"), daemon.Span(t.EndsIn))
	}
}

func networkLine(n daemon.NetworkStatus) string {
	if !n.On {
		return "off (no interfaces)"
	}
	var parts []string
	for _, i := range n.Interfaces {
		switch {
		case i.ProgramID != 0:
			parts = append(parts, fmt.Sprintf("%s %s, program %d", i.Name, modeInWords(i.AttachMode), i.ProgramID))
		case i.AttachMode == "none":
			parts = append(parts, i.Name+" NOT ATTACHED")
		default:
			parts = append(parts, i.Name+": "+i.Warning)
		}
	}
	if t := n.Table; t != nil {
		parts = append(parts, fmt.Sprintf("%d of %d slots live", t.Live, t.Slots))
	}
	return strings.Join(parts, "; ")
}

// modeInWords says what in generic mode is easily taken for a wrong count.
func modeInWords(mode string) string {
	if mode == "generic" {
		return "generic (a GSO packet counts once)"
	}
	return mode
}

func tlsInWords(l daemon.Listener) string {
	if l.CertificateEnds.IsZero() {
		return ""
	}
	return " (TLS, certificate until " + l.CertificateEnds.Format(time.DateOnly) + ")"
}

func httpLine(h daemon.HTTPStatus) string {
	if !h.On {
		return "off (no listeners)"
	}
	var parts []string
	for _, l := range h.Listeners {
		parts = append(parts, l.Address+" to "+l.Upstream+tlsInWords(l))
	}
	if h.Up {
		parts = append(parts, fmt.Sprintf("pid %d as %s", h.PID, h.User))
	} else {
		parts = append(parts, "DOWN")
	}
	if h.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("%d restarts", h.Restarts))
	}
	if b := h.Restored; b != nil && b.Error != "" {
		parts = append(parts, "buckets start full: "+printable(b.Error))
	} else if b != nil {
		parts = append(parts, fmt.Sprintf("%d buckets go on from %s before, when a stop took %s of at most %ds", b.Keys, seconds(b.Ago), seconds(b.Took), h.StopsWithin))
	}
	if len(h.Answers) > 0 {
		var codes []string
		for code, n := range h.Answers {
			codes = append(codes, fmt.Sprintf("%s × %d", code, n))
		}
		slices.Sort(codes)
		parts = append(parts, "answered "+strings.Join(codes, ", "))
	}
	if len(h.Ended) > 0 {
		var reasons []string
		for reason, n := range h.Ended {
			reasons = append(reasons, fmt.Sprintf("%s × %d", reason, n))
		}
		slices.Sort(reasons)
		parts = append(parts, "connections ended: "+strings.Join(reasons, ", "))
	}
	if b := h.Buckets; b.Keys > 0 {
		parts = append(parts, fmt.Sprintf("%d keys in %s of %s, %s full", b.Keys, bytesInWords(b.Bytes), bytesInWords(b.Bound), percent(b.Fill)))
	}
	if h.Faults > 0 {
		parts = append(parts, fmt.Sprintf("%d requests met a fault of the gate (its log has more)", h.Faults))
	}
	if h.LostLines > 0 {
		parts = append(parts, fmt.Sprintf("%d lines of the access log were lost: the disk is full or slow", h.LostLines))
	}
	return strings.Join(parts, "; ")
}

// fleetLine says in words how this host stands in its fleet.
func fleetLine(st daemon.Status) string {
	f := st.HTTP.Fleet
	switch {
	case f == nil && st.Board == nil:
		return "none: limits are per host"
	case f == nil:
		return st.Board.Fleet + ": limits are per host (the HTTP gate is off or not up)"
	}
	s := fmt.Sprintf("%s, %d hosts: %s", f.Name, len(f.Hosts), strings.Join(f.Hosts, " "))
	if !f.Up {
		s = fmt.Sprintf("%s, OUT OF REACH since %s: %s; this host goes on alone with its share of each limit", f.Name, moment(f.Since), f.Reason)
	}
	if len(f.Others) > 0 {
		s += fmt.Sprintf("; ANOTHER SECRET on %s: they share nothing with this host (give all the same fleet.secret_file)", strings.Join(f.Others, " "))
	}
	return s
}

func printRules(e *env, rules []daemon.Rule) {
	rows := [][]string{{"RULE", "GATE", "MODE", "COUNTS", "PASSED", "REFUSED", "WATCHED"}}
	for _, r := range rules {
		what, n := "packets", r.Packets
		if r.Requests != nil {
			what, n = "requests", r.Requests
		}
		if r.Aside != "" || n == nil {
			rows = append(rows, []string{r.Name, r.Gate, "not in force"})
			continue
		}
		rows = append(rows, []string{r.Name, r.Gate, firstOf(r.Mode, "unknown"), what, decimal(n.Passed), decimal(n.Refused), decimal(n.Watched)})
	}
	table(e.out, rows)
	fmt.Fprintln(e.out, "else: pass")
	for _, r := range rules {
		if h := r.Held; h != nil && h.Fill >= nearlyFull {
			fmt.Fprintf(e.out, "the memory for keys of %s is %s full: at 100%% new keys take the places of others, or share one bucket (raise `memory`)\n", r.Name, percent(h.Fill))
		}
	}
}

// nearlyFull is how full a rule's memory is when status speaks of it.
const nearlyFull = 0.9

// percent writes a part of 1.
func percent(part float64) string { return strconv.FormatFloat(part*100, 'f', 0, 64) + "%" }

// bytesInWords writes an amount of memory with its unit, to about one part in a
// hundred.
func bytesInWords(n uint64) string {
	for _, u := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return strconv.FormatFloat(float64(n)/float64(u.size), 'f', max(0, 2-len(decimal(n/u.size))), 64) + " " + u.name
		}
	}
	return decimal(n) + " bytes"
}

// printDrops lists the reasons of dropped packets, the commonest first.
func printDrops(e *env, reasons []daemon.Reason) {
	var drops []daemon.Reason
	for _, r := range reasons {
		if r.Verdict == "drop" && r.Packets > 0 {
			drops = append(drops, r)
		}
	}
	if len(drops) == 0 {
		return
	}
	slices.SortStableFunc(drops, func(a, b daemon.Reason) int {
		switch {
		case a.Packets > b.Packets:
			return -1
		case a.Packets < b.Packets:
			return 1
		}
		return 0
	})
	rows := [][]string{{"DROPPED FOR", "PACKETS", "BYTES"}}
	for _, r := range drops {
		rows = append(rows, []string{r.Reason, decimal(r.Packets), decimal(r.Bytes)})
	}
	fmt.Fprintln(e.out)
	table(e.out, rows)
}

// printLists shows how the lists of the config fare.
func printLists(e *env, lists []daemon.ListStatus) {
	if len(lists) == 0 {
		return
	}
	rows := [][]string{{"LIST", "PREFIXES", "AGE", "SOURCE", "LAST ERROR"}}
	for _, l := range lists {
		age := "never read"
		if !l.Read.IsZero() {
			age = daemon.Span(l.Age)
		}
		rows = append(rows, []string{l.Name, strconv.Itoa(l.Prefixes), age, l.Source, l.Error})
	}
	fmt.Fprintln(e.out)
	table(e.out, rows)
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// seconds writes a short time.
func seconds(s float64) string { return fmt.Sprintf("%.1fs", s) }
