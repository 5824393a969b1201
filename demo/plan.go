package main

import (
	"net/netip"
	"time"
)

// The API keys: one asks too often, the other waits as long as it is told.
const (
	greedyKey  = "greedy"
	patientKey = "patient"
)

// plan is what the demo does: who sends what, and the limits on it.
type plan struct {
	Duration time.Duration

	Attacker, Good, Caller netip.Addr

	PacketRate, PacketBurst int     // the network rule: UDP packets a second a source
	FloodRate, CalmRate     float64 // packets a second of the attacker, of the good client

	PageRate, PageBurst int           // the HTTP rule for each client, a second
	PageEvery           time.Duration // how often the good client asks

	KeyRate, KeyBurst int           // the HTTP rule for each API key, a minute
	KeyEvery          time.Duration // how often the greedy key asks
}

// newPlan floods at ten times the limit, and has the good client send and ask
// at half of its limits. A key may ask every third second, so that its
// Retry-After has something to say.
func newPlan(d time.Duration) plan {
	return plan{
		Duration:    d,
		Attacker:    netip.MustParseAddr("198.51.100.66"),
		Good:        netip.MustParseAddr("192.0.2.10"),
		Caller:      netip.MustParseAddr("203.0.113.7"),
		PacketRate:  2000,
		PacketBurst: 2000,
		FloodRate:   20000,
		CalmRate:    1000,
		PageRate:    20,
		PageBurst:   40,
		PageEvery:   time.Second / 10,
		KeyRate:     20,
		KeyBurst:    3,
		KeyEvery:    time.Second / 5,
	}
}

// packetsIn is what the network rule admits of one source in d.
func (p plan) packetsIn(d time.Duration) float64 {
	return float64(p.PacketBurst) + float64(p.PacketRate)*d.Seconds()
}

// requestsIn is what the rule for keys admits of one key in d.
func (p plan) requestsIn(d time.Duration) float64 {
	return float64(p.KeyBurst) + float64(p.KeyRate)*d.Minutes()
}
