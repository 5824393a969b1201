package config

import (
	"fmt"
	"slices"
	"strings"
)

// unknownKey says what to do about a key that l does not have. meant is the
// key of l that it probably stands for, "" if none.
func unknownKey(l *level, name string) (msg, meant string) {
	if slices.Contains(later[l.path], name) {
		return fmt.Sprintf("this version does not have `%s` yet; remove it", name), ""
	}
	tidy := plain(name)
	if l == keyFileLevel && slices.Contains(clearKey, tidy) {
		return fmt.Sprintf("`%s` holds a key in clear text: write `sha256` and the hash that `printf %%s KEY | sha256sum` prints", tidy), "sha256"
	}
	if l.has(tidy) {
		return didYouMean(name, tidy), tidy
	}
	if slices.Contains(later[l.path], tidy) {
		return fmt.Sprintf("this version does not have `%s` yet; remove it", tidy), ""
	}
	if many := tidy + "s"; l.has(many) {
		return didYouMean(name, many), many
	}
	for _, home := range levels {
		if home != l && home.has(tidy) && l != keyFileLevel {
			return fmt.Sprintf("`%s` belongs in %s, not in %s", tidy, home.title, l.title), ""
		}
	}
	for home, keys := range later {
		if slices.Contains(keys, tidy) && !strings.HasSuffix(home, " value") {
			return fmt.Sprintf("this version does not have `%s` yet; remove it", tidy), ""
		}
	}
	ours := foreign[tidy]
	if l.has(ours) {
		return didYouMean(name, ours), ours
	}
	for _, home := range levels {
		if l != keyFileLevel && home.has(ours) {
			return fmt.Sprintf("unknown key %s: did you mean `%s` in %s?", show(name), ours, home.title), ""
		}
	}
	if near := nearest(tidy, l.names()); near != "" {
		return didYouMean(name, near), near
	}
	return fmt.Sprintf("unknown key %s: %s has %s", show(name), l.title, list(l.names())), ""
}

// clearKey are what people call a key that is written down as it is.
var clearKey = []string{"key", "api_key", "apikey", "secret", "token", "value", "password"}

func didYouMean(name, ours string) string {
	return fmt.Sprintf("unknown key %s: did you mean `%s`?", show(name), ours)
}

// show puts a short plain word between backticks, and quotes all else.
func show(name string) string {
	if q := quote(name); q == `"`+name+`"` {
		return "`" + name + "`"
	}
	return quote(name)
}

// oneOf says what to do about a word that is none of those a key takes.
func oneOf(key, word string, words []string) string {
	tidy := strings.ToLower(strings.TrimSpace(word))
	for _, w := range later[key+" value"] {
		if w == tidy {
			return fmt.Sprintf("this version does not have `%s: %s` yet; use %s", key, tidy, list(words))
		}
	}
	near := foreignWords[key][tidy]
	if near == "" {
		near = nearest(strings.ReplaceAll(tidy, "_", "-"), words)
	}
	if near != "" {
		return fmt.Sprintf("%s is no `%s`: did you mean `%s`?", quote(word), key, near)
	}
	return fmt.Sprintf("%s is no `%s`: use %s", quote(word), key, list(words))
}

// foreignWords are other tools' words for a key's value.
var foreignWords = map[string]map[string]string{
	"per": {
		"ip": "client", "address": "client", "addr": "client", "remote_addr": "client", "src": "source",
		"saddr": "source", "dst": "destination", "daddr": "destination", "api_key": "key", "apikey": "key", "token": "key", "global": "total", "all": "total",
	},
	"mode":        {"dry-run": "watch", "dry_run": "watch", "shadow": "watch", "log": "watch", "on": "enforce", "true": "enforce"},
	"attach_mode": {"skb": "generic", "drv": "native", "driver": "native", "hw": "native"},
	"gate":        {"xdp": "network", "kernel": "network", "l7": "http", "https": "http"},
	"algorithm":   {"tokenbucket": "token-bucket", "sliding-window": "sliding-counter", "sliding_window": "sliding-counter"},
}

// plain is a key as this grammar would spell it: lower case, underscores, no
// spaces around it.
func plain(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	return strings.NewReplacer("-", "_", " ", "_").Replace(s)
}

// list joins words for a message: a, b or c.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest returns the word that s is a slip of the finger away from, "" where
// none is near or s is too long to be a word at all.
func nearest(s string, words []string) string {
	best, least := "", 3
	if len(s) > 40 {
		return ""
	}
	for _, w := range words {
		allowed := 2
		if min(len(s), len(w)) <= 4 {
			allowed = 1
		}
		if d := distance(s, w); d <= allowed && d < least {
			best, least = w, d
		}
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions, and swaps of neighbours, which typing makes most of.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			next[j] = min(next[j-1]+1, row[j]+1, row[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
