package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
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

// checkSegment checks one literal segment. In the normal form all is decoded
// but `/` and `%`, which would otherwise change what the path says.
func checkSegment(seg string) string {
	switch {
	case seg == "." || seg == "..":
		return fmt.Sprintf("remove the `%s` segment", seg)
	case strings.Contains(seg, "**"):
		return "`**` stands alone at the end, such as /x/**"
	case strings.Contains(seg, "*"):
		return "write `{name}` for any one segment, or `/**` at the end for all below"
	case strings.ContainsAny(seg, "{}"):
		return "`{name}` is a whole segment, such as /u/{id}"
	case strings.IndexFunc(seg, unicode.IsControl) >= 0:
		return "remove the control character"
	}
	for rest := seg; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return ""
		}
		if !strings.HasPrefix(after, "2F") && !strings.HasPrefix(after, "25") {
			return "write the character itself instead of its %-code; only `/` and `%` inside a segment stay as %2F and %25"
		}
		rest = after
	}
}
