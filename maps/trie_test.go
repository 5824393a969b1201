package maps

import (
	"maps"
	"net/netip"
	"testing"
)

// Entries read in lots and one by one are the same, over several lots and with
// none.
func TestReadEntries(t *testing.T) {
	g := fixedGate(t)
	m := g.objects.Prefixes4
	for _, n := range []int{0, 1, 8191, 8192, 20000} {
		if err := g.SetHeld(hosts(n), func(netip.Prefix) Held { return Held{Block: true} }); err != nil {
			t.Fatal(err)
		}
		inLots, oneByOne := map[bpfPrefix4Key]bpfPrefix{}, map[bpfPrefix4Key]bpfPrefix{}
		twice := 0
		err := readEntries(m, func(k bpfPrefix4Key, v bpfPrefix) {
			if _, had := inLots[k]; had {
				twice++
			}
			inLots[k] = v
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := iterateEntries(m, func(k bpfPrefix4Key, v bpfPrefix) { oneByOne[k] = v }); err != nil {
			t.Fatal(err)
		}
		if len(inLots) != n || twice > 0 || !maps.Equal(inLots, oneByOne) {
			t.Errorf("%d entries: %d in lots, %d twice, %d one by one", n, len(inLots), twice, len(oneByOne))
		}
	}
}
