package l7

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/limit"
)

// mostItems bounds the items of the RateLimit fields.
const mostItems = 8

// item is how one enforcing rule stands after a decision.
type item struct {
	name      string
	quota     int64
	window    int64 // s, to restore the quota
	remaining int64
	wait      int64 // s, until one more request passes; 0: now
	reset     int64 // s, until all of the quota is there again
}

// items returns how the enforcing rules stand, the most binding first: who
// refuses longest, else who has least left.
func (d *decision) items() []item {
	all := make([]item, 0, len(d.charges))
	for i := range d.charges {
		c := &d.charges[i]
		if c.Watch {
			continue
		}
		all = append(all, item{
			name: d.rules[i].name, quota: c.Limit.Quota(), window: max(1, seconds(c.Limit.Window())),
			remaining: c.Answer.Remaining, wait: seconds(limit.ToDuration(c.Answer.Wait)),
			reset: seconds(limit.ToDuration(c.Answer.Reset)),
		})
	}
	slices.SortStableFunc(all, func(a, b item) int {
		switch {
		case a.wait != b.wait:
			return int(min(max(b.wait-a.wait, -1), 1))
		case a.remaining != b.remaining:
			return int(min(max(a.remaining-b.remaining, -1), 1))
		}
		return int(min(max(b.reset-a.reset, -1), 1))
	})
	return all
}

// seconds rounds up: a time that a client is told must be long enough.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// setLimits sets RateLimit-Policy and RateLimit as of
// draft-ietf-httpapi-ratelimit-headers-10 and -11: q requests per w seconds;
// r are left for the next t seconds. With none left, t is the time until there
// is one, so that it agrees with Retry-After.
func setLimits(h http.Header, all []item) {
	if len(all) == 0 {
		return
	}
	policy, state := make([]byte, 0, 128), make([]byte, 0, 128)
	for i, it := range all[:min(len(all), mostItems)] {
		if i > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		effective := max(1, it.reset)
		if it.remaining == 0 {
			effective = max(1, it.wait)
		}
		policy = appendItem(policy, it.name, ";q=", it.quota, ";w=", it.window)
		state = appendItem(state, it.name, ";r=", it.remaining, ";t=", effective)
	}
	h.Add("RateLimit-Policy", string(policy))
	h.Add("RateLimit", string(state))
}

// appendItem appends a string with two integer parameters (RFC 9651). Names of
// rules hold nothing that needs a backslash.
func appendItem(b []byte, name, key1 string, n1 int64, key2 string, n2 int64) []byte {
	b = append(append(append(b, '"'), name...), '"')
	b = strconv.AppendInt(append(b, key1...), min(n1, largestInteger), 10)
	return strconv.AppendInt(append(b, key2...), min(n2, largestInteger), 10)
}

// largestInteger is that of a structured field (RFC 9651, 3.3.1).
const largestInteger = 999_999_999_999_999

// maySeeLimits reports whether an answer of the upstream may carry the limits
// of one client: none that shared caches are told they may store, and no
// redirect or informational answer.
func maySeeLimits(status int, h http.Header) bool {
	if status < 200 || status >= 300 && status < 400 {
		return false
	}
	control := strings.ToLower(strings.Join(h["Cache-Control"], ","))
	for directive := range strings.SplitSeq(control, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(directive), "=")
		if name == "public" || name == "s-maxage" {
			return false
		}
	}
	return true
}

// problem is a body as of RFC 9457.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

// quotaExceeded is registered by draft-ietf-httpapi-ratelimit-headers.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// answer writes an answer of the gate itself, which no cache may keep.
func answer(w http.ResponseWriter, p problem) {
	if p.Type == "" {
		p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	w.Write(body) // an error means that the client is gone: nobody to tell
}

// refuse answers 429 (RFC 6585, 4). Retry-After is the longest wait over the
// rules that refuse: who obeys it and is alone on its bucket keys passes then.
func refuse(w http.ResponseWriter, all []item) {
	p := problem{
		Type: quotaExceeded, Title: "Request cannot be satisfied as assigned quota has been exceeded",
		Status: http.StatusTooManyRequests,
	}
	for _, it := range all {
		if it.wait > 0 {
			p.Violated = append(p.Violated, it.name)
		}
	}
	wait := max(1, all[0].wait)
	p.Detail = "over " + strings.Join(p.Violated, ", ") + ": try again in " + strconv.FormatInt(wait, 10) + " s"
	w.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
	setLimits(w.Header(), all)
	answer(w, p)
}
