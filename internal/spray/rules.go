package spray

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/headgate/headgate/config"
)

// The packet that Meeting's rule, and no other of Mixed, is met by.
const (
	MetPort   = 9000
	metPrefix = "10.0.0.0/10"
)

// Meeting is a rule with a prefix and a port.
func Meeting(rate config.Rate, burst int64) config.Rule {
	r := rule("meeting", config.Match{
		From:     config.Addresses{Prefixes: []netip.Prefix{netip.MustParsePrefix(metPrefix)}},
		Protocol: "udp", Ports: []config.PortRange{{First: MetPort, Last: MetPort}},
	})
	r.Rate, r.Burst = rate, burst
	return r
}

func rule(name string, m config.Match) config.Rule {
	return config.Rule{
		Name: name, Gate: config.GateNetwork, Match: m, Per: []config.Per{config.PerSource},
		Algorithm: config.TokenBucket, Mode: config.Enforce,
		Rate: config.Rate{Amount: 1000, Interval: time.Second, Unit: config.Count}, Burst: 1000,
	}
}

// Mixed draws n rules, the same ones for the same n: half over source
// prefixes, the others over ports, TCP flags and destinations in turn. At most
// four meet on one packet.
func Mixed(n int) []config.Rule {
	random := rand.New(rand.NewPCG(7, uint64(n)))
	seen := map[any]bool{}
	rules := make([]config.Rule, 0, n)
	for len(rules) < n {
		m, key := drawMatch(random, len(rules))
		if seen[key] {
			continue
		}
		seen[key] = true
		rules = append(rules, rule(fmt.Sprintf("mixed-%d", len(rules)), m))
	}
	return rules
}

// drawMatch keeps the matches of one kind apart, so that a packet meets one of
// each kind at most.
func drawMatch(random *rand.Rand, i int) (config.Match, any) {
	if i%2 == 0 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(11 + random.IntN(200)), byte(random.IntN(256)), byte(random.IntN(256))}), 24)
		if random.IntN(4) == 0 {
			// as near to the sources of a benchmark as can be
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64 | byte(random.IntN(192)), byte(random.IntN(256))}), 24)
		}
		return config.Match{From: config.Addresses{Prefixes: []netip.Prefix{p}}}, p
	}
	port := func(first int) []config.PortRange {
		p := uint16(first + random.IntN(20_000))
		return []config.PortRange{{First: p, Last: p}}
	}
	switch i / 2 % 3 {
	case 0:
		ports := port(10_000)
		protocol := []string{"tcp", "udp"}[random.IntN(2)]
		return config.Match{Protocol: protocol, Ports: ports}, protocol + fmt.Sprint(ports)
	case 1:
		ports := port(30_000)
		return config.Match{Protocol: "tcp", Ports: ports, Flags: &config.TCPFlags{Set: 2, Clear: 16}}, ports[0]
	}
	p := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(random.IntN(256)), byte(random.IntN(256))}), 32)
	return config.Match{To: config.Addresses{Prefixes: []netip.Prefix{p}}}, p
}
