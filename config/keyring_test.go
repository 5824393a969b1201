package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func ringOf(n int) (*Keyring, []Key) {
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{sha256.Sum256(fmt.Append(nil, i)), fmt.Sprint("owner-", i%(n/10+1)), "acme", "paid"}
	}
	return NewKeyring(keys), keys
}

// Many keys are found by half of their hash, and names are kept once.
func TestKeyring(t *testing.T) {
	t.Parallel()
	ring, keys := ringOf(100_000)
	if n := len(ring.Block()) / len(keys); n > 25 {
		t.Errorf("%d bytes a key", n)
	}
	back, err := OpenKeyring(bytes.Clone(ring.Block()))
	if err != nil || !back.Equal(ring) || back.Fingerprint() != ring.Fingerprint() {
		t.Fatalf("it reads back as another: %v", err)
	}
	for i, k := range keys {
		if h, ok := back.Find(k.SHA256); !ok || h != (Holder{k.Owner, k.Tenant, k.Plan}) {
			t.Fatalf("key %d: %v, %v", i, h, ok)
		}
	}
	for i := range 1000 {
		if _, ok := back.Find(sha256.Sum256(fmt.Append(nil, "none", i))); ok {
			t.Fatalf("none %d is found", i)
		}
	}
	if parts, n := back.Owned("owner-7", 3); len(parts) != 3 || n != 10 || parts[0] == parts[1] {
		t.Errorf("%d keys of %d that owner-7 has: %x", len(parts), n, parts)
	}
	if parts, n := back.Owned("nobody", 3); len(parts)+n > 0 {
		t.Errorf("nobody has %d keys", n)
	}
}

func TestNoKeys(t *testing.T) {
	t.Parallel()
	var none *Keyring
	empty := NewKeyring(nil)
	opened, err := OpenKeyring(empty.Block())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Keyring{none, empty, opened} {
		_, found := k.Find(sha256.Sum256(nil))
		if _, n := k.Owned("", 1); found || n+k.Len() > 0 {
			t.Errorf("%v has keys", k)
		}
	}
}

// Whatever the hashes look like, each key is found, and the first of two of one
// hash counts.
func TestKeyringOfAnyHashes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := map[[KeyPart]byte]Holder{}
		var keys []Key
		for range rapid.IntRange(0, 60).Draw(t, "keys") {
			var k Key
			k.SHA256[0] = rapid.SampledFrom([]byte{0, 1, 255}).Draw(t, "begin")
			k.SHA256[KeyPart-1] = byte(rapid.IntRange(0, 30).Draw(t, "end"))
			k.Owner = rapid.StringMatching("[ab]{1,3}").Draw(t, "owner")
			k.Plan = rapid.SampledFrom([]string{"", "a", "paid"}).Draw(t, "plan")
			keys = append(keys, k)
			if part := [KeyPart]byte(k.SHA256[:]); want[part] == (Holder{}) {
				want[part] = Holder{k.Owner, k.Tenant, k.Plan}
			}
		}
		ring := NewKeyring(keys)
		if ring.Len() != len(want) {
			t.Fatalf("%d keys, want %d", ring.Len(), len(want))
		}
		for _, k := range keys {
			if h, ok := ring.Find(k.SHA256); !ok || h != want[[KeyPart]byte(k.SHA256[:])] {
				t.Fatalf("%x: %v %v", k.SHA256, h, ok)
			}
		}
	})
}

// What was cut or changed on its way is refused, or at least leads no look-up
// astray.
func FuzzOpenKeyring(f *testing.F) {
	ring, keys := ringOf(40)
	block := ring.Block()
	f.Add(block)
	f.Add(NewKeyring(nil).Block())
	for i := 0; i < len(block); i += 7 {
		f.Add(block[:i])
		bad := bytes.Clone(block)
		binary.LittleEndian.PutUint32(bad[min(i&^3, len(bad)-4):], 1<<31)
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		k, err := OpenKeyring(block)
		if err != nil {
			return
		}
		for _, key := range keys {
			k.Find(key.SHA256)
		}
		k.Owned("owner-1", 5)
	})
}

func BenchmarkFindAmongMillionKeys(b *testing.B) {
	ring, keys := ringOf(1_000_000)
	b.ReportMetric(float64(len(ring.Block()))/float64(len(keys)), "bytes/key")
	i := 0
	for b.Loop() {
		if i++; i == len(keys) {
			i = 0
		}
		if _, ok := ring.Find(keys[i].SHA256); !ok {
			b.Fatal(i)
		}
	}
}
