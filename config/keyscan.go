package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// largestKeyTree is the largest key file that is read as YAML of any form: its
// syntax tree takes some 50 times its size. A larger one needs a key a line.
const largestKeyTree = 4 << 20

// scanKeys reads a key file that has each key on a line of its own, written as
// `- {sha256: HASH, owner: NAME}` with `tenant` and `plan` where they are known:
// a million take about a second. bad is the first line that is
// written otherwise or holds a fault, 0 if there is none; what it says then is
// left to the parser of YAML.
func scanKeys(data []byte) (keys []Key, bad int) {
	if !utf8.Valid(data) {
		return nil, 1
	}
	lines := bytes.Count(data, []byte("\n")) + 1
	s := keyScanner{keys: make([]Key, 0, lines), names: map[string]string{}, seen: make(map[uint64]uint32, lines)}
	for line := 1; len(data) > 0; line++ {
		var text []byte
		text, data, _ = bytes.Cut(data, []byte("\n"))
		text = bytes.TrimRight(text, " \r")
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if !s.line(text) {
			return nil, line
		}
	}
	return s.keys, 0
}

// mostShared bounds the names that are looked for again.
const mostShared = 1 << 14

// hashOfNothing is no key's.
var hashOfNothing = sha256.Sum256(nil)

type keyScanner struct {
	keys  []Key
	names map[string]string // those that come again and again share their memory
	seen  map[uint64]uint32 // the begin of a hash, and which key it was
	key   Key
}

// line reads one item of the list.
func (s *keyScanner) line(b []byte) bool {
	b, ok := bytes.CutPrefix(b, []byte("- {"))
	if !ok {
		return false
	}
	s.key = Key{}
	for {
		name, rest, found := bytes.Cut(b, []byte(": "))
		if !found {
			return false
		}
		value, rest, ok := scanWord(rest)
		if !ok || len(rest) == 0 || !s.put(name, value) {
			return false
		}
		if rest[0] == '}' {
			return s.end(rest[1:])
		}
		if b, ok = bytes.CutPrefix(rest, []byte(", ")); !ok {
			return false
		}
	}
}

func (s *keyScanner) put(name, value []byte) bool {
	var to *string
	switch string(name) {
	case "sha256":
		if len(value) != 2*sha256.Size || s.key.SHA256 != [sha256.Size]byte{} {
			return false
		}
		_, err := hex.Decode(s.key.SHA256[:], value)
		return err == nil
	case "owner":
		to = &s.key.Owner
	case "tenant":
		to = &s.key.Tenant
	case "plan":
		to = &s.key.Plan
	}
	if to == nil || *to != "" || len(value) > longestOwner {
		return false
	}
	kept, ok := s.names[string(value)]
	if !ok {
		kept = string(value)
	}
	if !ok && len(s.names) < mostShared {
		s.names[kept] = kept
	}
	*to = kept
	return true
}

// end takes the key, unless something is wrong with it or follows it.
func (s *keyScanner) end(rest []byte) bool {
	if len(rest) > 0 && !bytes.HasPrefix(bytes.TrimLeft(rest, " "), []byte("#")) || len(rest) > 0 && rest[0] == '#' {
		return false
	}
	if s.key.Owner == "" || s.key.SHA256 == [sha256.Size]byte{} || s.key.SHA256 == hashOfNothing {
		return false
	}
	begin := binary.LittleEndian.Uint64(s.key.SHA256[:])
	if at, ok := s.seen[begin]; ok && s.keys[at].SHA256 == s.key.SHA256 {
		return false
	}
	s.seen[begin] = uint32(len(s.keys))
	s.keys = append(s.keys, s.key)
	return true
}

// scanWord reads a plain word, or a quoted one without escapes, that means to
// YAML what it looks like.
func scanWord(b []byte) (word, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	if quote := b[0]; quote == '"' || quote == '\'' {
		word, rest, ok = bytes.Cut(b[1:], b[:1])
		ok = ok && len(word) > 0 && !bytes.ContainsAny(word, "\\\t\r") && len(bytes.TrimSpace(word)) == len(word)
		return word, rest, ok && (len(rest) == 0 || rest[0] != quote)
	}
	n := 0
	for n < len(b) && plainByte[b[n]] {
		n++
	}
	word = b[:n]
	return word, b[n:], n > 0 && isLetterOrDigit(word[0]) && !(n == 4 && strings.EqualFold(string(word), "null"))
}

func isLetterOrDigit(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
}

// plainByte are those that plain words of a key file are made of.
var plainByte = func() (set [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@/+-") {
		set[c] = true
	}
	return set
}()

// keys reads a key file of any size.
func (r *reader) keys(data []byte) []Key {
	keys, bad := scanKeys(data)
	switch {
	case bad == 0 && len(keys) > 0:
		return keys
	case bad > 0 && len(data) > largestKeyTree:
		r.add(bad, 1, fmt.Sprintf("a key file of more than %d MiB has a key a line, each once, as `- {sha256: HASH, owner: NAME}` (tenant and plan may follow): this line is written otherwise, or repeats a key", largestKeyTree>>20))
		return nil
	}
	return r.keyFile(data)
}
