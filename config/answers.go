package config

import (
	"net/url"
	"slices"
	"strings"
)

// Answers is how the HTTP gate words what it says by itself, and which limits
// it tells on all answers.
type Answers struct {
	Dialect Dialect // of listeners that have none of their own
	Reset   Reset   // with XRateLimit
	Jitter  int     // percent of the wait that Retry-After may be longer; 0 to MaxJitter
	Body    Body    // of refusals; without File: application/problem+json
	CORS    CORS
}

// Dialect is the family of header fields that limits are told in.
type Dialect string

const (
	IETF       Dialect = "ietf"        // draft-ietf-httpapi-ratelimit-headers-10 and -11
	IETF12     Dialect = "ietf-12"     // the same draft from -12
	XRateLimit Dialect = "x-ratelimit" // X-RateLimit-Limit, -Remaining, -Reset
	GitHub     Dialect = "github"      // the same, -Used and -Resource, as GitHub's API has them
	NoDialect  Dialect = "none"
)

// Reset is what X-RateLimit-Reset holds.
type Reset string

const (
	ResetDelta Reset = "delta" // seconds from now
	ResetEpoch Reset = "epoch" // seconds since 1970 (UTC)
)

// MaxJitter is the most that Retry-After may be lengthened by, in percent.
const MaxJitter = 1000

// CORS says which pages of other origins may read the gate's own answers.
type CORS struct {
	// Origins are as browsers send them, such as https://app.example, or "*"
	// alone. Empty: the gate says nothing about it.
	Origins []string
}

var (
	dialects = []string{string(IETF), string(IETF12), string(XRateLimit), string(GitHub), string(NoDialect)}
	resets   = []string{string(ResetDelta), string(ResetEpoch)}
)

// answers reads `http.answers`.
func (o *object) answers() Answers {
	a := Answers{Dialect: o.dialect(), Reset: o.reset(), Jitter: o.jitter()}
	if b := o.child("body", bodyLevel); b != nil {
		a.Body = b.body()
	}
	if c := o.child("cors", corsLevel); c != nil {
		a.CORS.Origins = c.origins()
	}
	return a
}

// dialect reads `dialect`; "" where a listener names none.
func (o *object) dialect() Dialect {
	w, ok := o.word("dialect")
	if ok && !slices.Contains(dialects, w.text) {
		o.errorf(w.node, "%s", oneOf("dialect", w.text, dialects))
	}
	return Dialect(w.text)
}

func (o *object) reset() Reset {
	w, ok := o.word("reset")
	if ok && !slices.Contains(resets, w.text) {
		o.errorf(w.node, "%s", oneOf("reset", w.text, resets))
	}
	return Reset(w.text)
}

func (o *object) jitter() int {
	w, _ := o.word("jitter")
	number, percent := strings.CutSuffix(w.text, "%")
	n, err := parseWhole(number)
	if w.text != "" && (!percent || err != nil || n > MaxJitter) {
		o.errorf(w.node, "jitter %s: write a percentage from 0%% to %d%%, such as 10%%", quote(w.text), MaxJitter)
	}
	return int(n)
}

func (o *object) origins() (all []string) {
	if !o.need("origins", "name the pages that may read answers, such as [https://app.example], or \"*\" for all") {
		return nil
	}
	words := o.words("origins")
	for _, w := range words {
		switch fault := checkOrigin(w.text); {
		case w.text == "*" && len(words) > 1:
			o.errorf(w.node, "\"*\" is every origin: write it alone, or remove it")
		case fault != "":
			o.errorf(w.node, "origin %s: %s", quote(w.text), fault)
		case slices.Contains(all, w.text):
			o.errorf(w.node, "origin %s is there twice: remove one", quote(w.text))
		default:
			all = append(all, w.text)
		}
	}
	return all
}

// checkOrigin checks that s is what a browser writes into Origin (RFC 6454,
// 6.2): another spelling would never be met.
func checkOrigin(s string) string {
	if s == "*" {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case s == "null":
		return "any page can have the origin null: name those that you mean"
	case err != nil || u.Scheme == "" || u.Host == "":
		return "write scheme and host, such as https://app.example"
	case strings.Contains(s, "*"):
		return "write each origin out, or \"*\" alone for all"
	case s != u.Scheme+"://"+u.Host:
		return "write it without path, query or user: " + u.Scheme + "://" + u.Host
	case s != strings.ToLower(s):
		return "write it in lower case, as browsers do"
	case u.Scheme == "http" && u.Port() == "80" || u.Scheme == "https" && u.Port() == "443":
		return "leave out the port that the scheme has anyway, as browsers do"
	}
	return ""
}

// answers warns about what no listener will ever say.
func (w *warnings) answers(h HTTP) {
	speaks := h.Answers.Dialect == XRateLimit || slices.ContainsFunc(h.Listeners, func(l Listener) bool { return l.Dialect == XRateLimit })
	if h.Answers.Reset == ResetEpoch && !speaks {
		w.addf("http.answers.reset: epoch does nothing: no listener speaks dialect x-ratelimit")
	}
	if slices.Equal(h.Answers.CORS.Origins, []string{"*"}) && h.KeyHeader != "" {
		w.addf("http.answers.cors has \"*\": browsers show refusals to pages only where requests carry no credentials; name the origins")
	}
}
