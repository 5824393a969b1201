package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// The limits that the checks judge by are those that the daemon is given.
func TestConfigSaysWhatIsPlanned(t *testing.T) {
	p := newPlan(20 * time.Second)
	path, err := settings{
		plan: p, Interface: "gate0", Door: "10.0.0.1:8080", Upstream: "127.0.0.1:9000",
		Admin: "127.0.0.1:9317", Dir: t.TempDir(), Pins: "/sys/fs/bpf/x",
	}.write()
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.HTTP.Keys.Len() != 2 {
		t.Errorf("%d keys, want 2", c.HTTP.Keys.Len())
	}
	if w := config.Warnings(c); len(w) != 0 {
		t.Errorf("the demo's own config is warned of: %q", w)
	}
	type figures struct {
		gate          config.Gate
		amount, burst int64
		interval      time.Duration
	}
	got := make(map[string]figures)
	for _, r := range c.Rules {
		got[r.Name] = figures{r.Gate, r.Rate.Amount, r.Burst, r.Rate.Interval}
	}
	want := map[string]figures{
		"packets": {config.GateNetwork, int64(p.PacketRate), int64(p.PacketBurst), time.Second},
		"pages":   {config.GateHTTP, int64(p.PageRate), int64(p.PageBurst), time.Second},
		"api":     {config.GateHTTP, int64(p.KeyRate), int64(p.KeyBurst), time.Minute},
	}
	for name, figures := range want {
		if got[name] != figures {
			t.Errorf("rule %s: got %+v, want %+v", name, got[name], figures)
		}
	}
	if len(got) != len(want) {
		t.Errorf("rules %v, want %d", got, len(want))
	}
}
