package packets

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/rig"
)

// Buffers are frames larger than one buffer: their bytes are the whole frame's
// in limits and counts, wherever the first buffer ends, and headers outside it
// are truncated.
func Buffers() Table {
	t := Table{
		Name:      "buffers",
		FragsOnly: true,
		Rules: []config.Rule{{
			Name: "bytes", Gate: config.GateNetwork, Per: []config.Per{config.PerSource},
			Algorithm: config.TokenBucket, Mode: config.Enforce,
			Rate: config.Rate{Amount: 1000, Interval: time.Second, Unit: config.Bytes}, Burst: 200_000,
		}},
		Allow: prefixes("198.51.100.7/32", "2001:db8:bad:7::7/128"),
		Block: prefixes("198.51.100.0/24", "2001:db8:bad::/48"),
	}
	for _, size := range []int{3000, 3520, 3521, 4096, 4097, 9014, 16384, 65535} {
		t.Cases = append(t.Cases,
			large("blocked", "block", "198.51.100.9", size, 0),
			large("blocked", "block", "2001:db8:bad::9", size, 0),
			large("allowed", "allow", "198.51.100.7", size, 0),
			large("allowed", "allow", "2001:db8:bad:7::7", size, 0),
		)
		for _, linear := range []int{42, 100, 1514, 2999} {
			t.Cases = append(t.Cases, large("blocked", "block", "198.51.100.9", size, linear))
		}
	}
	t.Cases = append(t.Cases, spent("203.0.113.5", 0)...)
	t.Cases = append(t.Cases, spent("2001:db8:1::5", 0)...)
	t.Cases = append(t.Cases, spent("203.0.113.6", 42)...)
	t.Cases = append(t.Cases, spent("2001:db8:2::5", 62)...)
	t.Cases = append(t.Cases,
		farTransport("block", "2001:db8:bad::9"),
		farTransport("truncated", "2001:db8:bad:7::7"),
		farTransport("truncated", "2001:db8:9::9"),
	)
	return t
}

// large is a UDP frame of size bytes.
func large(what, reason, source string, size, linear int) Case {
	p := From(source)
	p.Length = size
	c := packet(fmt.Sprintf("%s %s, %d bytes, first buffer of %d", what, source, size, linear), reason, p)
	c.Linear = linear
	return c
}

// spent takes a bucket of 200 000 bytes to its end, to the byte but for the
// little that comes back in a table's time.
func spent(source string, linear int) (cases []Case) {
	for range 22 {
		cases = append(cases, large("limited", "within_rate", source, 9000, linear))
	}
	return append(cases, // 198 000 so far
		large("limited", "over_rate", source, 9000, linear),
		large("limited", "over_rate", source, 4000, linear),
		large("limited", "within_rate", source, 1900, linear),
		large("limited", "over_rate", source, 1514, linear),
	)
}

// farTransport is an IPv6 packet with its transport header behind 4 kB of
// extension headers, outside the first buffer on every kernel.
func farTransport(reason, source string) Case {
	p := From(source)
	p.Length = 9000
	for range 2 {
		p.Headers = append(p.Headers, rig.Header{Protocol: 60, Body: make([]byte, 2046)})
	}
	return packet("transport header in another buffer, "+source, reason, p)
}
