package l7

import (
	"math/bits"
	"slices"
	"strings"
)

const (
	// longestPath is the longest path that is read, in bytes as sent.
	longestPath = 8 << 10
	// mostReading bounds the work that a path may make: bytes times readings.
	mostReading = 32 << 10
)

// reading is a choice between ways in which servers read a path that is not
// written plainly. Rules hold a request in every reading of its path: which
// one the upstream follows is unknown.
type reading uint8

const (
	// splitEncoded takes %2F, and a backslash however written, for a slash.
	splitEncoded reading = 1 << iota
	// decodeAgain decodes what decoding brings to light, up to 4 times in all.
	decodeAgain
	// cutParams drops ";" and what follows in a segment (RFC 3986, 3.3).
	cutParams
	// keepDots leaves "." and ".." as they are.
	keepDots
	// popEmpty lets ".." take away an empty segment, as RFC 3986, 5.2.4 does,
	// instead of the named one before it.
	popEmpty
	// shorten reads UTF-8 that is longer than need be, as %C0%AF for "/", which
	// RFC 3629, 3 forbids and old decoders take.
	shorten
)

// readings appends the normal form of raw, the path of a request as sent, in
// each of its readings; a plain path has one. The normal form is
// percent-decoded but for "/" and "%" themselves (%2F, %25), has no empty or
// dot segments and no slash at its end. It is false where raw is too long to be
// read in all ways.
func readings(raw string, to []string) ([]string, bool) {
	if len(raw) > longestPath {
		return to, false
	}
	if plain(raw) {
		return append(to, trimSlash(raw)), true
	}
	choices := ambiguities(raw)
	if len(raw)<<bits.OnesCount8(uint8(choices)) > mostReading {
		return to, false
	}
	for c := choices; ; c = (c - 1) & choices { // every subset, the empty one last
		if n := c.normal(raw); !slices.Contains(to, n) {
			to = append(to, n)
		}
		if c == 0 {
			return to, true
		}
	}
}

// telling are the bytes that a plain path has none of, or not everywhere.
var telling = func() (t [256]bool) {
	for _, c := range []byte(`%\;./`) {
		t[c] = true
	}
	for c := 0xc0; c < len(t); c++ { // may begin overlong UTF-8
		t[c] = true
	}
	return t
}()

// plain reports whether raw is in normal form but for a slash at its end.
func plain(raw string) bool {
	if raw == "" || raw[0] != '/' {
		return false
	}
	for i := 1; i < len(raw); i++ {
		c := raw[i]
		if !telling[c] {
			continue
		}
		switch {
		case c == '.' || c == '/':
			if raw[i-1] == '/' {
				return false
			}
		case c < 0xc0 || isOverlong(raw[i:]):
			return false
		}
	}
	return true
}

func trimSlash(path string) string {
	if len(path) > 1 && path[len(path)-1] == '/' {
		return path[:len(path)-1]
	}
	return path
}

// ambiguities returns the choices that may matter to how raw is read.
func ambiguities(raw string) (c reading) {
	if strings.Contains(raw, "%25") {
		c |= decodeAgain
	}
	if hasOverlong(decodeAgain.decode(raw)) {
		c |= shorten
		if strings.Contains((shorten|decodeAgain).decode(raw), "%25") || strings.Contains(shorten.decode(raw), "%25") {
			c |= decodeAgain
		}
	}
	odd := c & shorten
	full := (odd | decodeAgain).decode(raw)
	if strings.Contains(full, `\`) || strings.Contains(full, "%2F") {
		c |= splitEncoded
	}
	full = (odd | decodeAgain | splitEncoded).decode(raw)
	if strings.Contains(full, ";") {
		c |= cutParams
	}
	if strings.Contains(full, "/.") {
		c |= keepDots
		if strings.Contains(full, "//") || strings.Contains(full, "/;") {
			c |= popEmpty
		}
	}
	return c
}

// normal returns the normal form of raw under the choices c.
func (c reading) normal(raw string) string {
	kept := make([]string, 0, 16)
	for segment := range strings.SplitSeq(strings.TrimPrefix(c.decode(raw), "/"), "/") {
		if c&cutParams != 0 {
			segment, _, _ = strings.Cut(segment, ";")
		}
		switch {
		case segment == "" && c&popEmpty == 0:
		case segment == "." && c&keepDots == 0:
		case segment == ".." && c&keepDots == 0:
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
		}
	}
	kept = slices.DeleteFunc(kept, func(s string) bool { return s == "" })
	return "/" + strings.Join(kept, "/")
}

// decode removes percent-encoding but for that of "/" and "%".
func (c reading) decode(s string) string {
	if !strings.ContainsAny(s, `%\`) && (c&shorten == 0 || !hasOverlong(s)) {
		return s
	}
	rounds := 1
	if c&decodeAgain != 0 {
		rounds = 4
	}
	for ; rounds > 0; rounds-- {
		before := s
		if s = c.shortened(c.decodeOnce(s)); s == before {
			break
		}
	}
	return s
}

func (c reading) decodeOnce(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		char, escaped := s[i], false
		if char == '%' && i+2 < len(s) && ishex(s[i+1]) && ishex(s[i+2]) {
			char, escaped = unhex(s[i+1])<<4|unhex(s[i+2]), true
			i += 2
		}
		switch {
		case c&splitEncoded != 0 && (char == '\\' || char == '/'):
			b = append(b, '/')
		case char == '/' && escaped:
			b = append(b, "%2F"...)
		case char == '%' && c&decodeAgain != 0 && escaped && i+2 < len(s) && ishex(s[i+1]) && ishex(s[i+2]):
			b = append(b, '%') // the next round decodes what it begins
		case char == '%':
			b = append(b, "%25"...)
		default:
			b = append(b, char)
		}
	}
	return string(b)
}

func ishex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&0x0f + 9
}
