package l7

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/config"
)

// answers is config.Answers made ready.
type answers struct {
	dialect config.Dialect
	epoch   bool
	jitter  int // percent
	body    config.Template
	kind    string // media type of body
	cors    cors
}

func newAnswers(a config.Answers) (answers, error) {
	ready := answers{dialect: a.Dialect, epoch: a.Reset == config.ResetEpoch, jitter: a.Jitter, kind: a.Body.Type, cors: newCORS(a.CORS)}
	if ready.dialect == "" {
		ready.dialect = config.IETF
	}
	if a.Body.File == "" {
		return ready, nil
	}
	var err error
	ready.body, err = a.Body.Template()
	return ready, err
}

// problem is a body as of RFC 9457.
type problem struct {
	Type      string   `json:"type"`
	Title     string   `json:"title"`
	Status    int      `json:"status"`
	Detail    string   `json:"detail,omitempty"`
	Violated  []string `json:"violated-policies,omitempty"`
	RequestID string   `json:"request-id,omitempty"`
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
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	send(w, p.Status, append(body, '\n'))
}

// refuse answers 429 (RFC 6585, 4), or what stands for it in the protocol of a
// remote call. Retry-After is the longest wait over the rules: who obeys it and
// is alone on its bucket keys passes then.
func (v *visit) refuse(r *http.Request, d *decision) {
	all := d.standing()
	first, date := &all[0], v.gate.Wall()
	d.delay(v.policy.answers.jitter, v.gate.store, &v.asker, v.gate.now(), first)
	text := v.describe(d, all, date)
	v.rule, v.id = text.Rule, text.RequestID
	h := v.Header()
	h.Set("Request-Id", text.RequestID)
	h.Set("Cache-Control", "no-store")
	h["Retry-After"] = []string{strconv.FormatInt(text.RetryAfter, 10)}
	v.policy.tell(h, v.dialect, all, true, date)
	if how := protocolOf(r); how != plainHTTP {
		refuseCall(v, r, how, text.Detail, max(first.exact, time.Duration(first.wait)*time.Second))
		return
	}
	if v.policy.answers.fill(v, r, text) {
		return
	}
	answer(v, problem{
		Type: quotaExceeded, Title: text.Title, Status: text.Status, Detail: text.Detail,
		Violated: text.Rules, RequestID: text.RequestID,
	})
}

// describe says in words why a request is refused.
func (v *visit) describe(d *decision, all []item, date time.Time) config.Refusal {
	first := &all[0]
	f := config.Refusal{
		Status: http.StatusTooManyRequests, Title: "Request cannot be satisfied as assigned quota has been exceeded",
		Rule: first.rule.name, RetryAfter: max(1, first.wait),
	}
	for _, it := range all {
		if it.refuses {
			f.Rules = append(f.Rules, it.rule.name)
		}
	}
	f.Detail = "over " + strings.Join(f.Rules, ", ") + ": try again in " + strconv.FormatInt(f.RetryAfter, 10) + " s"
	key := v.policy.seal.hashKey(f.Rule, v.asker.appendParts(nil, d.per[first.at]))
	f.RequestID = v.policy.seal.id(f.Rule, date, key)
	return f
}

// fill answers with the user's body, unless there is none or r asks for JSON
// and the body is something else.
func (a *answers) fill(w http.ResponseWriter, r *http.Request, text config.Refusal) bool {
	if a.body == nil || prefersProblem(r.Header.Get("Accept"), a.kind) {
		return false
	}
	var b bytes.Buffer
	if err := a.body.Execute(&b, text); err != nil {
		return false // it went well when the file was read: answer all the same
	}
	w.Header().Set("Content-Type", a.kind)
	send(w, text.Status, b.Bytes())
	return true
}

// prefersProblem reports whether a client names JSON, and neither the body's
// type nor "anything".
func prefersProblem(accept, kind string) bool {
	kind, _, _ = strings.Cut(kind, ";")
	return strings.Contains(accept, "json") && !strings.Contains(accept, "*/*") && !strings.Contains(accept, strings.TrimSpace(kind))
}

// block answers 403 to a client that is blocked, for whatever it asks.
func (v *visit) block() {
	v.say(problem{Status: http.StatusForbidden, Detail: "this client is blocked"})
}

// say gives an answer that no rule asked for, with an id by which it is found
// again in the log.
func (v *visit) say(p problem) {
	key := v.policy.seal.hashKey("", v.asker.appendParts(nil, []config.Per{config.PerClient}))
	p.RequestID = v.policy.seal.id("", v.gate.Wall(), key)
	v.id = p.RequestID
	v.Header().Set("Request-Id", p.RequestID)
	answer(v, p)
}

// maySeeLimits reports whether an answer of the upstream may carry the limits
// of one client: no redirect or informational answer, and none that says that
// shared caches may store it (RFC 9111, 3), if only to ask before each use.
func maySeeLimits(status int, h http.Header) bool {
	if status < 200 || status >= 300 && status < 400 {
		return false
	}
	control, targeted := h["Cache-Control"], len(h["Cdn-Cache-Control"])+len(h["Surrogate-Control"]) > 0
	if len(control) == 0 {
		return len(h["Expires"]) == 0 && !targeted
	}
	stores, private := len(h["Expires"]) > 0, false
	for _, line := range control {
		for directive := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(directive), "=")
			switch strings.ToLower(name) {
			case "public", "s-maxage":
				return false
			case "private", "no-store":
				private = true
			case "max-age", "no-cache", "must-revalidate", "proxy-revalidate", "immutable", "stale-while-revalidate":
				stores = true
			}
		}
	}
	return !targeted && (private || !stores)
}
