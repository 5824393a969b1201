package config

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"unicode/utf8"
)

// scanKeys reads a key file that has each key on a line of its own, written as
// `- {sha256: HASH, owner: NAME}` with `tenant` and `plan` where they are known:
// a million take about half a second. bad is the first line that is written
// otherwise or holds a fault, 0 if there is none; what it says then is left to
// the parser of YAML. size is about how many bytes there are.
func scanKeys(from io.Reader, size int64) (keys *keyringBuilder, bad uint32, err error) {
	lines := bufio.NewReaderSize(from, longestKeyLine)
	s := keyScanner{keys: newKeyringBuilder(int(size / shortestKeyLine))}
	for line := uint32(1); ; line++ {
		text, err := lines.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return nil, 0, err
		}
		s.at = line
		if err == bufio.ErrBufferFull || !s.line(bytes.TrimRight(bytes.TrimSuffix(text, []byte("\n")), " \r")) {
			return nil, line, nil
		}
		if err == io.EOF {
			return s.keys, 0, nil
		}
	}
}

const (
	longestKeyLine  = 1 << 16 // bytes of the key file
	shortestKeyLine = 86      // that names a key: - {sha256: HASH, owner: A}
)

// hashOfNothing is no key's.
var hashOfNothing = sha256.Sum256(nil)

type keyScanner struct {
	keys *keyringBuilder
	at   uint32 // line

	sum                 [sha256.Size]byte
	owner, tenant, plan []byte // they lie in the line
}

// line reads one item of the list, a comment or nothing.
func (s *keyScanner) line(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if !utf8.Valid(b) {
		return false
	}
	if b[0] == '#' {
		return true
	}
	b, ok := bytes.CutPrefix(b, []byte("- {"))
	if !ok {
		return false
	}
	s.sum, s.owner, s.tenant, s.plan = [sha256.Size]byte{}, nil, nil, nil
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
	var to *[]byte
	switch string(name) {
	case "sha256":
		if len(value) != 2*sha256.Size || s.sum != [sha256.Size]byte{} {
			return false
		}
		_, err := hex.Decode(s.sum[:], value)
		return err == nil
	case "owner":
		to = &s.owner
	case "tenant":
		to = &s.tenant
	case "plan":
		to = &s.plan
	}
	if to == nil || *to != nil || len(value) > longestOwner {
		return false
	}
	*to = value
	return true
}

// end takes the key, unless something is wrong with it or follows it.
func (s *keyScanner) end(rest []byte) bool {
	if len(rest) > 0 && !bytes.HasPrefix(bytes.TrimLeft(rest, " "), []byte("#")) || len(rest) > 0 && rest[0] == '#' {
		return false
	}
	if s.owner == nil || s.sum == [sha256.Size]byte{} || s.sum == hashOfNothing {
		return false
	}
	s.keys.add([KeyPart]byte(s.sum[:]), s.keys.holder(s.owner, s.tenant, s.plan), s.at)
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
