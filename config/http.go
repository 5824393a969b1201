package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

func (o *object) http() HTTP {
	h := HTTP{Listeners: o.listeners(), Proxies: o.prefixes("proxies")}
	h.ClientFrom = o.clientFrom()
	o.identities(&h)
	o.proxyProtocol(&h)
	for _, n := range o.objects("exempt") {
		if e := o.object(n, exemptLevel); e != nil {
			h.Exempt = append(h.Exempt, e.exempt())
		}
	}
	h.User = o.user()
	h.ClientBits = o.clientBits()
	h.Memory = o.memory(leastMemory)
	h.Connections = o.connections()
	timeout := o.answerTimeout()
	for i := range h.Listeners {
		h.Listeners[i].AnswerTimeout = timeout
	}
	h.Answers = o.section("answers", answersLevel).answers()
	if l := o.child("access_log", accessLogLevel); l != nil {
		h.AccessLog = l.accessLog()
	}
	h.Certificates = o.certificates
	return h
}

func (o *object) exempt() Exempt {
	var e Exempt
	if o.need("path", "name the path that no rule applies to") {
		if w, ok := o.word("path"); ok {
			fault := checkPath(w.text)
			if fault == "" && strings.ContainsAny(w.text, "*{") {
				fault = fmt.Sprintf("path %s: an exempt path is exact, without wildcards", quote(w.text))
			}
			if fault != "" {
				o.errorf(w.node, "%s", fault)
			}
			e.Path = w.text
		}
	}
	if o.need("from", "name the prefixes that may ask for it without limit") {
		e.From = o.prefixes("from")
		if seq, ok := o.values["from"].(*ast.SequenceNode); ok && len(seq.Values) == 0 {
			o.errorf(seq, "`from` is empty: nobody is exempt, remove the item or name prefixes")
		}
	}
	return e
}

// user reads a system user's name; that it exists is seen at start.
func (o *object) user() string {
	w, _ := o.word("user")
	const set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	if len(w.text) > 32 || strings.Trim(w.text, set) != "" || strings.HasPrefix(w.text, "-") {
		o.errorf(w.node, "%s is no name of a system user", quote(w.text))
	}
	return w.text
}

func (o *object) answerTimeout() time.Duration {
	w, ok := o.word("answer_timeout")
	if !ok {
		return 0
	}
	d, err := ParseDuration(w.text)
	switch {
	case err != nil:
		o.errorf(w.node, "answer_timeout %s", err)
	case d < time.Second || d > 24*time.Hour:
		o.errorf(w.node, "answer_timeout %s: from 1s to 24h", quote(w.text))
	}
	return d
}

const mostConnections = 1_000_000 // of one client

func (o *object) connections() int {
	w, _ := o.word("connections_per_client")
	n, err := parseWhole(w.text)
	if w.text != "" && (err != nil || n < 1 || n > mostConnections) {
		o.errorf(w.node, "connections_per_client %s: write a whole number from 1 to %d, such as 256", quote(w.text), mostConnections)
	}
	return int(n)
}

func (o *object) clientBits() int {
	w, _ := o.word("ipv6_prefix")
	n, err := parseWhole(strings.TrimPrefix(w.text, "/"))
	if w.text != "" && (err != nil || n < 48 || n > 128 || w.text[0] == '/') {
		o.errorf(w.node, "ipv6_prefix %s: write a whole number from 48 to 128, such as 64", quote(w.text))
	}
	return int(n)
}
