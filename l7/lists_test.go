package l7

import (
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Lists changed step by step against lists set as a whole.
func TestChangeListsAgainstSetPolicy(t *testing.T) {
	pool := prefixes("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.4", "192.0.2.0/24", "2001:db8::/32", "2001:db8:1::/48", "::ffff:10.9.0.0/112")
	asked := []string{"10.0.0.1", "10.1.0.1", "10.1.2.3", "10.1.2.4", "10.9.0.1", "192.0.2.1", "2001:db8::1", "2001:db8:1::1", "198.51.100.1"}
	rapid.Check(t, func(rt *rapid.T) {
		g := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err := g.SetPolicy(Policy{Block: prefixes("192.0.2.0/24")}); err != nil {
			rt.Fatal(err)
		}
		some := rapid.SliceOfN(rapid.SampledFrom(pool), 0, 4)
		want := Policy{Block: prefixes("192.0.2.0/24")}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			c := ListChange{Allow: some.Draw(rt, "allow"), Disallow: some.Draw(rt, "disallow"), Block: some.Draw(rt, "block"), Unblock: some.Draw(rt, "unblock")}
			before := g.policy.Load()
			had := before.verdicts(asked)
			if err := g.ChangeLists(c); err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(before.verdicts(asked), had) {
				rt.Fatal("a request in flight saw its policy change")
			}
			want.Allow = without(append(want.Allow, c.Allow...), c.Disallow)
			want.Block = without(append(want.Block, c.Block...), c.Unblock)
		}
		whole, err := want.compile(g.store, func(string) *counts { return nil })
		if err != nil {
			rt.Fatal(err)
		}
		if got, want := g.policy.Load().verdicts(asked), whole.verdicts(asked); !slices.Equal(got, want) {
			rt.Fatalf("%v, want %v for %v", got, want, asked)
		}
	})
}

func (c *policy) verdicts(addresses []string) (out []string) {
	for _, a := range addresses {
		addr := netip.MustParseAddr(a)
		switch {
		case contains(c.allow, addr):
			out = append(out, "allow")
		case contains(c.block, addr):
			out = append(out, "block")
		default:
			out = append(out, "neither")
		}
	}
	return out
}

func without(all, gone []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(all, func(p netip.Prefix) bool { return slices.Contains(gone, p) })
}

func TestChangeListsNeedsPolicy(t *testing.T) {
	g := New(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := g.ChangeLists(ListChange{Block: prefixes("192.0.2.1")}); err == nil {
		t.Error("lists were changed where there is no policy")
	}
	if !(ListChange{}).Empty() || (ListChange{Unblock: prefixes("192.0.2.1")}).Empty() {
		t.Error("Empty is wrong")
	}
}
