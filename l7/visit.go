package l7

import (
	"net/http"

	"github.com/headgate/headgate/config"
)

type visitKey struct{}

// visit is one request on its way through the proxy, and what its answer is
// written to.
type visit struct {
	hearer
	gate     *Gate
	policy   *policy
	dialect  config.Dialect
	origin   []string // of the page that asks
	asker    asker
	decision *decision // nil: not counted
	body     *body     // nil: it has none
	relayed  bool      // the answer is the upstream's
	upstream *upstream
	target   *target // that it is at; nil: at none
	wrote    bool
	last     bool // its connection brings no further request
	large    bool // it has a large body on HTTP/1
	access        // for the log
}

// Unwrap lets http.ResponseController reach the connection.
func (v *visit) Unwrap() http.ResponseWriter { return v.ResponseWriter }

// WriteHeader adds the limits to a final answer where they may be seen.
func (v *visit) WriteHeader(status int) {
	if status >= 200 && !v.wrote {
		v.wrote, v.status = true, status
		v.gate.answered(status)
		if _, ok := v.Header()["Content-Type"]; !ok {
			v.Header()["Content-Type"] = nil // none is guessed: the upstream said nothing
		}
		v.complete(status, v.Header())
		if v.last || v.large && v.body == nil { // the latter was not relayed
			v.Header()["Connection"] = []string{"close"}
		}
	}
	v.ResponseWriter.WriteHeader(status)
}

// complete adds to a final answer what the gate has to say.
func (v *visit) complete(status int, h http.Header) {
	if v.decision != nil && maySeeLimits(status, h) {
		v.policy.tell(h, v.dialect, v.decision.standing(), false, v.gate.Wall())
	}
	if v.relayed {
		v.policy.answers.cors.expose(h, v.dialect)
	} else {
		v.policy.answers.cors.allow(h, v.origin, v.dialect)
	}
}

func (v *visit) Write(b []byte) (int, error) {
	if !v.wrote {
		v.WriteHeader(http.StatusOK)
	}
	v.gate.listening.begin(&v.hearer)
	n, err := v.ResponseWriter.Write(b)
	v.hearer.end()
	v.sent += int64(n)
	return n, err
}

// FlushError sends what was written.
func (v *visit) FlushError() error {
	v.gate.listening.begin(&v.hearer)
	defer v.hearer.end()
	return http.NewResponseController(v.ResponseWriter).Flush()
}
