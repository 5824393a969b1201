package daemon

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/maps"
)

// BenchmarkImport imports 500 000 IPv4 and 100 000 IPv6 prefixes into a network
// gate, with single blocks all the while, and reports the seconds that it takes
// (RC-097: 10 at most) and the milliseconds of the slowest single block, during
// (200 at most) and after it.
//
//	go test -run '^$' -bench Import -benchtime 1x ./daemon
func BenchmarkImport(b *testing.B) {
	all := farApart(500_000)
	for b.Loop() {
		bench := gated(b, maps.Options{})
		imported := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := bench.d.addBatch(context.Background(), blocks, batch(all, "list"), Origin{})
			imported <- err
		}()
		var slowest time.Duration
		n := 0
		for done := false; !done; n++ {
			select {
			case err := <-imported:
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(start).Seconds(), "s/import")
				b.ReportMetric(float64(slowest.Milliseconds()), "ms/block-during")
				done, slowest = true, 0
			case <-time.After(20 * time.Millisecond):
			}
			slowest = max(slowest, bench.block(b, n))
		}
		for range 50 {
			n++
			slowest = max(slowest, bench.block(b, n))
		}
		b.ReportMetric(float64(slowest.Milliseconds()), "ms/block-after")
		if got, want := len(bench.inForce(b)), len(all)+n; got != want {
			b.Fatalf("%d blocks are in force, want %d", got, want)
		}
	}
}

// block blocks one address and returns how long that took.
func (b *bench) block(t testing.TB, n int) time.Duration {
	p := netip.PrefixFrom(netip.AddrFrom4([4]byte{240, 0, byte(n >> 8), byte(n)}), 32)
	start := time.Now()
	if _, err := b.d.addEntry(context.Background(), blocks, EntryRequest{Prefix: p, Ever: true}, Origin{}); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}
