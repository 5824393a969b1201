package l7

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/config"
)

// mostItems bounds the items of the RateLimit fields.
const mostItems = 8

// largestInteger is that of a structured field (RFC 9651, 3.3.1).
const largestInteger = 999_999_999_999_999

// told are the fields of each dialect, in the spelling of a browser's list.
var told = map[config.Dialect]string{
	config.IETF:       "RateLimit, RateLimit-Policy",
	config.IETF12:     "RateLimit, RateLimit-Partition, RateLimit-Policy",
	config.XRateLimit: "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Retry-After",
	config.GitHub:     "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Used, X-RateLimit-Resource",
}

// tell sets the fields of a dialect for all, which has the most binding first.
// refusing says that all is of a request that was refused.
func (p *policy) tell(h http.Header, dialect config.Dialect, all []item, refusing bool, date time.Time) {
	if len(all) == 0 {
		return
	}
	switch dialect {
	case config.NoDialect:
	case config.XRateLimit:
		p.tellX(h, all[0], refusing, date)
	case config.GitHub:
		tellGitHub(h, all[0], date)
	default:
		p.tellIETF(h, all[:min(len(all), mostItems)], dialect == config.IETF12, refusing)
	}
}

// tellIETF sets the fields of draft-ietf-httpapi-ratelimit-headers: lists of
// strings with parameters (RFC 9651). In the policy, q requests per w seconds.
// In the state, up to -11: r are left for the next t seconds, and pk tells
// partitions apart without saying whose they are. From -12: a and w for the
// same, c is what this request has cost; a partition would have to be spelled
// out there, so only its dimensions are told.
func (p *policy) tellIETF(h http.Header, all []item, twelve, refusing bool) {
	var room [1024]byte
	text := room[:0]
	for i := range all {
		text = appendItem(text, i, all[i].rule.name)
		text = appendParam(text, ";q=", all[i].quota)
		text = appendParam(text, ";w=", all[i].window)
	}
	policy := len(text)
	for i := range all {
		text = appendItem(text, i, all[i].rule.name)
		if twelve {
			text = appendParam(text, ";a=", all[i].remaining)
			text = appendParam(text, ";w=", all[i].pace)
			text = append(text, ";c="...)
			text = append(text, costOf(refusing))
			continue
		}
		text = appendParam(text, ";r=", all[i].remaining)
		text = appendParam(text, ";t=", all[i].pace)
		text = p.blur.append(append(text, ";pk="...), &all[i])
	}
	state := len(text)
	if twelve {
		for i := range all {
			text = append(appendItem(text, i, all[i].rule.name), all[i].rule.dimensions...)
		}
	}
	// One string and one slice for all fields: this is done for each request.
	s, values := string(text), make([]string, 3)
	values[0], values[1], values[2] = s[:policy], s[policy:state], s[state:]
	add(h, "Ratelimit-Policy", values[0:1:1])
	add(h, "Ratelimit", values[1:2:2])
	if twelve {
		add(h, "Ratelimit-Partition", values[2:3:3])
	}
}

// add sets a field whose name is canonical, after what the upstream has said.
func add(h http.Header, name string, value []string) {
	if have := h[name]; len(have) > 0 {
		value = append(have[:len(have):len(have)], value...)
	}
	h[name] = value
}

// appendItem appends the start of the i-th item of a list. Names of rules hold
// nothing that needs a backslash.
func appendItem(b []byte, i int, name string) []byte {
	if i > 0 {
		b = append(b, ", "...)
	}
	return append(append(append(b, '"'), name...), '"')
}

func appendParam(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), min(n, largestInteger), 10)
}

// costOf is what a request has taken of a rule: nothing when it was refused.
func costOf(refusing bool) byte {
	if refusing {
		return '0'
	}
	return '1'
}

// tellX sets what most older limiters send, of the rule that binds.
func (p *policy) tellX(h http.Header, it item, refusing bool, date time.Time) {
	reset := it.pace
	if p.answers.epoch {
		reset = epoch(date, it.pace)
	}
	set(h, "X-Ratelimit-Limit", it.quota)
	set(h, "X-Ratelimit-Remaining", it.remaining)
	set(h, "X-Ratelimit-Reset", reset)
	if refusing {
		set(h, "X-Ratelimit-Retry-After", max(1, it.wait))
	}
}

// tellGitHub sets what clients of GitHub's API read, of the rule that binds.
func tellGitHub(h http.Header, it item, date time.Time) {
	set(h, "X-Ratelimit-Limit", it.quota)
	set(h, "X-Ratelimit-Remaining", it.remaining)
	set(h, "X-Ratelimit-Used", it.quota-it.remaining)
	set(h, "X-Ratelimit-Reset", epoch(date, it.pace))
	h["X-Ratelimit-Resource"] = []string{it.rule.name}
}

// set replaces what the upstream may have said: of two values clients take any.
func set(h http.Header, name string, n int64) { h[name] = []string{strconv.FormatInt(n, 10)} }

// epoch returns the second that begins wait seconds after date, or soon after.
func epoch(date time.Time, wait int64) int64 {
	at := date.Unix() + wait
	if date.Nanosecond() > 0 {
		at++
	}
	return at
}

// blur makes partition keys: the same for the same bucket key while the process
// lives, and of no use to learn whose it is.
type blur struct{ block cipher.Block }

func newBlur() blur {
	var key [16]byte
	rand.Read(key[:])
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // of a length that is known
	}
	return blur{block}
}

// append appends 8 bytes as a byte sequence (RFC 9651, 3.3.5).
func (b blur) append(text []byte, it *item) []byte {
	in := it.key.Append(it.room[:0])
	b.block.Encrypt(in, in)
	text = append(text, ':')
	text = base64.StdEncoding.AppendEncode(text, in[:8])
	return append(text, ':')
}

// dimensionsOf returns what tells the partitions of a quota apart, as
// parameters. Those that nobody has registered bear our name.
func dimensionsOf(per []config.Per, methods []string) (text string) {
	for _, p := range per {
		switch p {
		case config.PerClient:
			text += ";headgate-client"
		case config.PerKey:
			text += ";client_id"
		case config.PerUser:
			text += ";user_id"
		case config.PerTenant:
			text += ";headgate-tenant"
		}
	}
	if len(methods) == 1 {
		text += ";method=" + methods[0]
	}
	return text
}
