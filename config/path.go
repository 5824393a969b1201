package config

import (
	"fmt"
	"slices"
	"strings"
)

// longestPath bounds a pattern; servers refuse request lines of a few times
// that.
const longestPath = 1024

// checkPath checks that a pattern is in the normal form that request paths are
// matched in; one that is not would never match, and the limit would be open.
func checkPath(s string) string {
	bad := func(format string, args ...any) string {
		return "path " + quote(s) + ": " + fmt.Sprintf(format, args...)
	}
	switch {
	case len(s) > longestPath:
		return bad("it has %d bytes, the most is %d", len(s), longestPath)
	case strings.Contains(s, "://"):
		return bad("write the path alone, and the host under `host`")
	case s[0] != '/':
		return bad("start it with `/`")
	case strings.ContainsAny(s, "?#"):
		return bad("a path has no query: remove `%s` and what follows", s[strings.IndexAny(s, "?#"):][:1])
	case strings.Contains(s, "//"):
		return bad("double slash: write one")
	case s == "/" || s == "/**":
		return ""
	case strings.HasSuffix(s, "/"):
		return bad("remove the slash at its end: %s matches with and without it, and %s** is all below too", s[:len(s)-1], s)
	}
	var names []string
	segments := strings.Split(s[1:], "/")
	for i, seg := range segments {
		if seg == "**" && i == len(segments)-1 {
			break
		}
		if strings.HasPrefix(seg, "{") && strings.HasSuffix(seg, "}") {
			name := seg[1 : len(seg)-1]
			if fault := checkParam(name, names); fault != "" {
				return bad("%s", fault)
			}
			names = append(names, name)
			continue
		}
		if fault := checkSegment(seg); fault != "" {
			return bad("%s", fault)
		}
	}
	return ""
}

// checkParam checks the name in a `{name}` segment.
func checkParam(name string, before []string) string {
	switch {
	case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
		return "a name in braces is of a to z, 0 to 9 and `_`, such as {id}"
	case slices.Contains(before, name):
		return fmt.Sprintf("{%s} is there twice: name one otherwise", name)
	}
	return ""
}

// checkSegment checks one literal segment: RFC 3986 pchar, with escapes in
// upper case and only where they are needed (section 6.2.2).
func checkSegment(seg string) string {
	const (
		unreserved = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
		plainOnes  = unreserved + "!$&'()+,;=:@"
	)
	switch {
	case seg == "." || seg == "..":
		return fmt.Sprintf("remove the `%s` segment", seg)
	case strings.Contains(seg, "**"):
		return "`**` stands alone at the end, such as /x/**"
	case strings.Contains(seg, "*"):
		return "write `{name}` for any one segment, or `/**` at the end for all below"
	case strings.ContainsAny(seg, "{}"):
		return "`{name}` is a whole segment, such as /u/{id}"
	}
	for i := 0; i < len(seg); i++ {
		c := seg[i]
		if c == '%' {
			if i+2 >= len(seg) || !isUpperHex(seg[i+1]) || !isUpperHex(seg[i+2]) {
				return "write `%` as two upper-case hex digits follow it, such as %2B"
			}
			if escaped := unhex(seg[i+1])<<4 | unhex(seg[i+2]); strings.IndexByte(unreserved, escaped) >= 0 {
				return fmt.Sprintf("write `%c` instead of %s", escaped, seg[i:i+3])
			}
			i += 2
			continue
		}
		if strings.IndexByte(plainOnes, c) < 0 {
			return fmt.Sprintf("write the byte 0x%02X as %%%02X", c, c)
		}
	}
	return ""
}

func isUpperHex(c byte) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'F' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}
