package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
)

// LongestList bounds the bytes of a file of prefixes: 64 MB.
const LongestList = 64 << 20

// longestLine bounds one line of such a file, comment included.
const longestLine = 64 << 10

// PrefixFile is what a file of prefixes holds.
type PrefixFile struct {
	Prefixes []netip.Prefix // by netip.Prefix.Compare, no two the same
	Twice    int            // lines that repeat a prefix
	Broken   Errors         // lines that are no prefix, each with the cure
}

// ReadPrefixes reads one address or prefix a line, as published block lists
// have them: with CRLF or LF, with or without a byte order mark, with blank
// lines, and with comments from `#` or `;` to the end of the line. name stands
// before faults. Broken lines do not keep the others from being read: whether
// they spoil the file is for the caller to say. The error is of reading, or of
// a file above LongestList.
func ReadPrefixes(name string, r io.Reader) (PrefixFile, error) {
	var f PrefixFile
	limited := &io.LimitedReader{R: r, N: LongestList + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, longestLine)
	number := 0
	for lines.Scan() {
		number++
		text := lines.Bytes()
		if number == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if i := bytes.IndexAny(text, "#;"); i >= 0 {
			text = text[:i]
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		p, err := parseListed(string(text))
		if err != nil {
			f.Broken = append(f.Broken, Error{File: name, Line: number, Col: 1, Msg: err.Error()})
			continue
		}
		f.Prefixes = append(f.Prefixes, p)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return f, fmt.Errorf("read %s: line %d is longer than %d bytes (write one prefix a line)", name, number+1, longestLine)
	} else if err != nil {
		return f, fmt.Errorf("read %s: %w", name, err)
	}
	if limited.N == 0 {
		return f, fmt.Errorf("read %s: it is larger than %d MB (split it)", name, LongestList>>20)
	}
	read := len(f.Prefixes)
	slices.SortFunc(f.Prefixes, netip.Prefix.Compare)
	f.Prefixes = slices.Compact(f.Prefixes)
	f.Twice = read - len(f.Prefixes)
	return f, nil
}

// parseListed is ParsePrefix for a line of a list, which nobody has looked at
// by itself: all addresses at once are more likely a slip of its publisher.
func parseListed(s string) (netip.Prefix, error) {
	p, err := ParsePrefix(s)
	switch {
	case err == nil && p.Bits() == 0:
		return p, fmt.Errorf("%s is every address: remove the line, and if you mean it, name it by itself", p)
	case err == nil:
		return p, nil
	}
	if mended := mend(s); mended != "" {
		return p, fmt.Errorf("%s %s", quote(s), mended)
	}
	return p, err
}

// mend says how to write the shapes that lists are known to hold by mistake.
func mend(s string) string {
	if words := strings.Fields(s); len(words) > 1 {
		if _, err := parsePrefix(words[0]); err == nil {
			return "is more than a prefix: write one a line, what is said of it after `#`"
		}
	}
	if from, to, ok := rangeEnds(s); ok {
		if parts := spanning(from, to, 8); parts != nil {
			return "is a range: write " + strings.Join(parts, ", ") + ", one a line"
		}
		return ""
	}
	if strings.Count(s, ".") >= 5 && strings.Trim(s, "0123456789./") == "" {
		return "looks like two addresses glued together: put a line break between them"
	}
	return ""
}

func rangeEnds(s string) (from, to netip.Addr, ok bool) {
	left, right, cut := strings.Cut(s, "-")
	if !cut {
		return from, to, false
	}
	from, err1 := netip.ParseAddr(strings.TrimSpace(left))
	to, err2 := netip.ParseAddr(strings.TrimSpace(right))
	ok = err1 == nil && err2 == nil && from.BitLen() == to.BitLen() && from.Zone() == "" && !to.Less(from)
	return from, to, ok
}

// spanning returns the prefixes that make the range from first to last, nil if
// they are more than most.
func spanning(first, last netip.Addr, most int) []string {
	var parts []string
	for len(parts) < most {
		p := netip.PrefixFrom(first, first.BitLen())
		for p.Bits() > 0 {
			wider := netip.PrefixFrom(first, p.Bits()-1)
			if wider.Masked().Addr() != first || last.Less(endOf(wider)) {
				break
			}
			p = wider
		}
		if parts = append(parts, short(p)); endOf(p) == last {
			return parts
		}
		first = endOf(p).Next()
	}
	return nil
}

// short writes a single address without its length.
func short(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// endOf is the last address of p.
func endOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
