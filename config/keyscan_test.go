package config

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What the quick way reads, the parser of YAML reads the same; what it leaves
// alone, it leaves to it.
func TestScanKeysIsYAML(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		word := rapid.OneOf(
			rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._@/+-]{0,8}`),
			rapid.StringMatching(`"[a-z '#:,{}]{1,6}"`), rapid.StringMatching(`'[a-z "#:,{}é]{1,6}'`),
			rapid.SampledFrom([]string{"null", "~", "true", "0x1f", "1e3", "-a", ".5", "a#b", "a: b", `"\u0061"`, "''", "", "&a", "a b", "@x", "+", "/", "1_0"}),
		)
		for range rapid.IntRange(0, 4).Draw(t, "lines") {
			fmt.Fprintf(&b, "- {%s: %x, owner: %s", rapid.SampledFrom([]string{"sha256", "sha256", "sha256", "key"}).Draw(t, "key"),
				sha256.Sum256([]byte{byte(rapid.IntRange(0, 20).Draw(t, "hash"))}), word.Draw(t, "owner"))
			for _, name := range []string{"tenant", "plan", "owner"} {
				if rapid.IntRange(0, 3).Draw(t, "has") == 0 {
					fmt.Fprintf(&b, ", %s: %s", name, word.Draw(t, name))
				}
			}
			b.WriteString(rapid.SampledFrom([]string{"}\n", "}\n", "} # why\n", "}#\n", "}  \r\n", " }\n", "}\n\n# c\n", "}\n  # c\n", "\n"}).Draw(t, "end"))
		}
		all, bad, err := scanKeys(strings.NewReader(b.String()), int64(b.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if bad > 0 || all.n == 0 {
			return
		}
		scanned, first, again := all.ring()
		if scanned == nil && (first == 0 || first >= again) {
			t.Fatalf("%s: twice in line %d and %d", b.String(), first, again)
		}
		if scanned == nil {
			return
		}
		r := &reader{file: "k"}
		parsed := r.keyFile([]byte(b.String()))
		if err := r.errs.err(); err != nil {
			t.Fatalf("%s\nis no YAML of ours: %v", b.String(), err)
		}
		if ring := NewKeyring(parsed); ring.Len() != len(parsed) || !ring.Equal(scanned) {
			t.Fatalf("%s is parsed as %v, and scanned as %d keys otherwise", b.String(), parsed, scanned.Len())
		}
	})
}

// manyKeys is a key file of n keys.
func manyKeys(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "- {sha256: %x, owner: owner-%d, tenant: tenant-%d, plan: paid}   # contract %d\n", sha256.Sum256(fmt.Append(nil, i)), i, i%1000, i)
	}
	return b.Bytes()
}

// A key file that is too large to read as a tree says which line makes it so.
func TestLargeKeyFile(t *testing.T) {
	t.Parallel()
	data := manyKeys(40_000)
	if len(data) < largestKeyTree {
		t.Fatal("the file is small")
	}
	dir := t.TempDir()
	write := func(data []byte) (*Config, error) {
		if err := os.WriteFile(filepath.Join(dir, "keys.yaml"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return Parse(filepath.Join(dir, "headgate.yaml"), []byte(withKeys))
	}
	c, err := write(data)
	if err != nil {
		t.Fatal(err)
	}
	last, ok := c.HTTP.Keys.Find(sha256.Sum256([]byte("39999")))
	if n := c.HTTP.Keys.Len(); n != 40_000 || !ok || last != (Holder{"owner-39999", "tenant-999", "paid"}) {
		t.Errorf("%d keys, the last %+v", n, last)
	}
	const otherwise = "keys.yaml:40001:1: a key file of more than 4 MiB has a key a line"
	for _, tc := range []struct{ more, want string }{
		{"- {sha256: s3cr3t, owner: acme}\n", otherwise},
		{"- sha256: " + hash("a") + "\n  owner: acme\n", otherwise},
		{"- {sha256: " + hash("a") + ", owner: " + strings.Repeat("s3cr3t", 20_000) + "}\n", otherwise},
		{"- {sha256: " + hash("a") + ", owner: \xff}\n", otherwise},
		{"- {sha256: " + hash("a") + ", owner: ac", otherwise},
		{fmt.Sprintf("- {sha256: %x, owner: twice}\n", sha256.Sum256([]byte("7"))), "keys.yaml:40001:1: the key is there twice, first in line 8: remove one"},
	} {
		_, err := write(append(bytes.Clone(data), tc.more...))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%.60s: %v", tc.more, err)
		}
	}
}

func BenchmarkScanMillionKeys(b *testing.B) {
	data := manyKeys(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		keys, bad, err := scanKeys(bytes.NewReader(data), int64(len(data)))
		if bad > 0 || err != nil {
			b.Fatal(bad, err)
		}
		if ring, _, _ := keys.ring(); ring.Len() != 1_000_000 {
			b.Fatal(ring.Len())
		}
	}
	b.SetBytes(int64(len(data)))
}
