package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// longestOwner bounds the names in a key file.
const longestOwner = 128

// keyFile reads the list of API keys, {sha256, owner, tenant, plan} each. No
// message repeats what stands where a hash should be: it may be a key.
func (r *reader) keyFile(data []byte) []Key {
	root, ok := r.document(data)
	if !ok {
		return nil
	}
	list, ok := root.(*ast.SequenceNode)
	if !ok {
		r.errorf(root, "the key file is a list, not %s: write `- {sha256: ..., owner: ...}` for each key, or [] for none", kind(root))
		return nil
	}
	var keys []Key
	lines := map[[sha256.Size]byte]int{}
	for _, n := range list.Values {
		o := r.object(n, keyFileLevel)
		if o == nil {
			continue
		}
		k, ok := o.key()
		if !ok {
			continue
		}
		if line := lines[k.SHA256]; line != 0 {
			o.errorf(o.at("sha256"), "the key is there twice, first in line %d: remove one", line)
			continue
		}
		lines[k.SHA256] = position(o.at("sha256")).Line
		keys = append(keys, k)
	}
	return keys
}

// key reads one item of the key file.
func (o *object) key() (k Key, ok bool) {
	ok = o.need("sha256", "it is the hash of the key, from `printf %s KEY | sha256sum`")
	if ok {
		var w word
		if w, ok = o.secretWord("sha256"); ok {
			var fault string
			if k.SHA256, fault = parseHash(w.text); fault != "" {
				o.errorf(w.node, "%s", fault)
				ok = false
			}
		}
	}
	o.need("owner", "it is whom the key belongs to")
	k.Owner, k.Tenant, k.Plan = o.owner("owner"), o.owner("tenant"), o.owner("plan")
	return k, ok
}

// secretWord is word without the text in its messages.
func (o *object) secretWord(key string) (word, bool) {
	if s, ok := o.values[key].(*ast.StringNode); ok {
		return word{strings.TrimSpace(s.Value), s}, true
	}
	if n, ok := o.values[key].(*ast.IntegerNode); ok {
		return word{n.GetToken().Value, n}, true
	}
	o.errorf(o.at(key), "`%s` is 64 hex digits, not %s", key, kind(o.values[key]))
	return word{}, false
}

func (o *object) owner(key string) string {
	w, ok := o.word(key)
	if ok && len(w.text) > longestOwner {
		o.errorf(w.node, "%s of %d bytes: the most is %d", key, len(w.text), longestOwner)
	}
	return w.text
}

// parseHash reads the hex form of a SHA-256.
func parseHash(s string) (sum [sha256.Size]byte, fault string) {
	const cure = "write the hash that `printf %s KEY | sha256sum` prints"
	raw, err := hex.DecodeString(s)
	switch {
	case err != nil:
		return sum, "sha256 is not 64 hex digits; if it is the key itself, replace it: " + cure
	case len(raw) != sha256.Size:
		return sum, fmt.Sprintf("sha256 has %d hex digits, not 64: %s", len(s), cure)
	}
	copy(sum[:], raw)
	if sum == sha256.Sum256(nil) {
		return sum, "sha256 is the hash of nothing: " + cure
	}
	return sum, ""
}
