package config

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		scanned, bad := scanKeys([]byte(b.String()))
		if bad > 0 || len(scanned) == 0 {
			return
		}
		r := &reader{file: "k"}
		parsed := r.keyFile([]byte(b.String()))
		if err := r.errs.err(); err != nil {
			t.Fatalf("%s\nis no YAML of ours: %v", b.String(), err)
		}
		if diff := cmp.Diff(parsed, scanned); diff != "" {
			t.Fatalf("%s (-parsed +scanned):\n%s", b.String(), diff)
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
	last := Key{SHA256: sha256.Sum256([]byte("39999")), Owner: "owner-39999", Tenant: "tenant-999", Plan: "paid"}
	if n := len(c.HTTP.Keys); n != 40_000 || c.HTTP.Keys[n-1] != last {
		t.Errorf("%d keys, the last %+v", n, c.HTTP.Keys[n-1])
	}
	for _, more := range []string{
		"- {sha256: s3cr3t, owner: acme}\n", "- sha256: " + hash("a") + "\n  owner: acme\n",
		fmt.Sprintf("- {sha256: %x, owner: twice}\n", sha256.Sum256([]byte("7"))),
	} {
		_, err := write(append(bytes.Clone(data), more...))
		if err == nil || !strings.Contains(err.Error(), "keys.yaml:40001:1: a key file of more than 4 MiB has a key a line") || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", more, err)
		}
	}
}

func BenchmarkScanMillionKeys(b *testing.B) {
	data := manyKeys(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		if keys, bad := scanKeys(data); bad > 0 || len(keys) != 1_000_000 {
			b.Fatal(bad)
		}
	}
	b.SetBytes(int64(len(data)))
}
