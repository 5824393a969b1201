package config

import (
	"fmt"
	"slices"
	"strings"
)

// perOrder is the order in which parts of a bucket key are kept.
var perOrder = []Per{PerSource, PerDestination, PerClient, PerUser, PerKey, PerTenant, PerTotal}

// readPer reads one `per` or a list of them, put into a fixed order: it is
// part of the bucket's identity, and the order of writing is not.
func (rr *ruleReader) readPer(o *object) []Per {
	var pers []Per
	for _, w := range o.words("per") {
		p := Per(w.text)
		if bits, ok := strings.CutPrefix(w.text, "source/"); ok {
			p = PerSource
			b4, b6, err := parseSourceBits(bits)
			if err != nil {
				o.errorf(w.node, "per %s: %s", quote(w.text), err)
			}
			rr.rule.SourceBits4, rr.rule.SourceBits6 = b4, b6
		}
		switch {
		case !slices.Contains(perOrder, p):
			o.errorf(w.node, "%s", oneOf("per", w.text, texts(perOrder)))
		case slices.Contains(pers, p):
			o.errorf(w.node, "`per` names %s twice: remove one", p)
		default:
			pers = append(pers, p)
		}
	}
	slices.SortFunc(pers, func(a, b Per) int { return slices.Index(perOrder, a) - slices.Index(perOrder, b) })
	return pers
}

// What `per: source` makes one key of.
const (
	sourceBits4 = 32
	sourceBits6 = 64
)

// parseSourceBits reads the lengths of the prefixes that make one key, of IPv4
// and IPv6, such as 24,56. The ordinary ones are 0 and so the same rule.
func parseSourceBits(s string) (bits4, bits6 uint8, err error) {
	first, second, both := strings.Cut(s, ",")
	four, err4 := parseWhole(first)
	six, err6 := parseWhole(second)
	switch {
	case !both && err4 == nil && four >= 1 && four <= 32:
		return 0, 0, fmt.Errorf("say the bits of IPv6 too, in quotes for the comma: \"source/%d,64\"", four)
	case err4 != nil || err6 != nil:
		return 0, 0, fmt.Errorf("write the bits of IPv4 and of IPv6, in quotes for the comma: \"source/24,56\"")
	case four < 1 || four > 32:
		return 0, 0, fmt.Errorf("the bits of IPv4 are from 1 to 32")
	case six != 128 && (six < 1 || six > 64):
		return 0, 0, fmt.Errorf("the bits of IPv6 are from 1 to 64, or 128")
	}
	return orZero(four, sourceBits4), orZero(six, sourceBits6), nil
}

func orZero(n, ordinary int64) uint8 {
	if n == ordinary {
		return 0
	}
	return uint8(n)
}

// perWords returns r's bucket key as the configuration writes it.
func (r Rule) perWords() []string {
	words := texts(r.Per)
	for i, p := range r.Per {
		if p == PerSource && (r.SourceBits4 != 0 || r.SourceBits6 != 0) {
			words[i] = fmt.Sprintf("source/%d,%d", orElse(r.SourceBits4, sourceBits4), orElse(r.SourceBits6, sourceBits6))
		}
	}
	return words
}

func orElse(n, ordinary uint8) int {
	if n == 0 {
		return int(ordinary)
	}
	return int(n)
}

// perFits checks `per` against the gate and itself.
func (rr *ruleReader) perFits() {
	use := "source, destination, both or total at the network gate; client, user, key, tenant, several of them or total at the http gate"
	if !rr.need("per", "say whose packets or requests are counted together: "+use) {
		return
	}
	per := rr.rule.Per
	if len(per) > 1 && slices.Contains(per, PerTotal) {
		rr.errorf(rr.at("per"), "`per: total` is one bucket for all: it stands alone")
	}
}
