package l7

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/limit"
)

// What a request costs that passes three rules, beyond the decision: to tell
// how they stand.
func BenchmarkTellIETF(b *testing.B)       { benchTell(b, config.IETF) }
func BenchmarkTellXRateLimit(b *testing.B) { benchTell(b, config.XRateLimit) }

func benchTell(b *testing.B, dialect config.Dialect) {
	p := benchPolicy(b, 3)
	p.blur = newBlur()
	d := newDecision(p)
	r := benchRequest(b)
	r.RemoteAddr = "192.0.2.7:4711"
	var a asker
	p.identify(r, &a)
	d.judge(p, r, &a, limit.FromDuration(time.Hour))
	date := time.Unix(1e9, 0)
	h := http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		clear(h)
		p.tell(h, dialect, d.standing(), false, date)
	}
}
