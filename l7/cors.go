package l7

import (
	"net/http"
	"slices"

	"github.com/headgate/headgate/config"
)

// cors lets pages of other origins read answers (Fetch, 3.2).
type cors struct {
	origins []string // empty: nothing is said
	any     bool
	exposed map[config.Dialect]string
}

func newCORS(c config.CORS) cors {
	exposed := map[config.Dialect]string{}
	for _, d := range []config.Dialect{config.IETF, config.IETF12, config.XRateLimit, config.GitHub, config.NoDialect} {
		exposed[d] = "Retry-After, Request-Id"
		if fields := told[d]; fields != "" {
			exposed[d] += ", " + fields
		}
	}
	return cors{origins: c.Origins, any: slices.Equal(c.Origins, []string{"*"}), exposed: exposed}
}

// allow lets the page that sent r read an answer of the gate's own. That says
// nothing about the upstream, so credentials are no secret to give away.
func (c *cors) allow(h http.Header, origin []string, dialect config.Dialect) {
	switch {
	case len(c.origins) == 0:
		return
	case c.any:
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		h.Add("Vary", "Origin")
		if len(origin) != 1 || !slices.Contains(c.origins, origin[0]) {
			return
		}
		h.Set("Access-Control-Allow-Origin", origin[0])
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	h.Set("Access-Control-Expose-Headers", c.exposed[dialect])
}

// expose lets a page that may read an answer of the upstream see the limits on
// it. Who may read is for the upstream to say.
func (c *cors) expose(h http.Header, dialect config.Dialect) {
	if len(c.origins) > 0 && len(h["Access-Control-Allow-Origin"]) > 0 {
		h.Add("Access-Control-Expose-Headers", c.exposed[dialect])
	}
}
