package daemon

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/config"
)

// renewWithin is how long before its end a certificate is warned of: who renews
// by themselves do so a month before, and had a fortnight to notice that they
// do not.
const renewWithin = 14 * 24 * time.Hour

// CertificateStatus is a certificate of a listener.
type CertificateStatus struct {
	File     string    `json:"file"`
	Ends     time.Time `json:"ends"`
	DaysLeft int       `json:"days_left"` // whole days, below 0 once it has ended
}

func certificateStatus(certs []config.Certificate, now time.Time) (out []CertificateStatus) {
	for _, c := range certs {
		days := math.Floor(c.Ends.Sub(now).Hours() / 24)
		out = append(out, CertificateStatus{File: c.CertFile, Ends: c.Ends.UTC(), DaysLeft: int(days)})
	}
	return out
}

// certificateWarnings names certificates that have ended or soon will.
func certificateWarnings(certs []config.Certificate, now time.Time) (out []string) {
	for _, c := range certs {
		switch left := c.Ends.Sub(now); {
		case left <= 0:
			out = append(out, fmt.Sprintf("certificate %s HAS ENDED on %s: clients refuse it (put a new one in its place, it is read at once)", c.CertFile, c.Ends.UTC().Format(time.DateOnly)))
		case left < renewWithin:
			out = append(out, fmt.Sprintf("certificate %s ends in %d days, on %s: put a new one in its place, it is read at once", c.CertFile, int(left.Hours()/24), c.Ends.UTC().Format(time.DateOnly)))
		}
	}
	return out
}

// endsByListener returns when the first certificate of each encrypted listener
// ends.
func endsByListener(h config.HTTP) map[string]time.Time {
	ends := map[config.CertificateFiles]time.Time{}
	for _, c := range h.Certificates {
		ends[c.CertificateFiles] = c.Ends
	}
	out := map[string]time.Time{}
	for _, l := range h.Listeners {
		if l.TLS == nil {
			continue
		}
		for _, names := range l.TLS.Certificates {
			if end, ok := out[l.Address]; !ok || ends[names].Before(end) {
				out[l.Address] = ends[names]
			}
		}
	}
	return out
}
