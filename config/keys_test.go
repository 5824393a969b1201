package config

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const withKeys = "version: 1\nhttp: {identities: {key: {header: x-api-key, file: keys.yaml}}}\n"

// parseWithKeys parses a config whose key file, beside it, holds keys.
func parseWithKeys(t *testing.T, keys string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keys.yaml"), []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Parse(filepath.Join(dir, "headgate.yaml"), []byte(withKeys))
	if errs, ok := err.(Errors); ok {
		for i := range errs {
			errs[i].File = strings.TrimPrefix(errs[i].File, dir+"/")
		}
	}
	return c, err
}

func hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func TestKeyFile(t *testing.T) {
	c, err := parseWithKeys(t, "- {sha256: "+hash("a")+", owner: acme, tenant: shop, plan: paid}\n- sha256: \""+
		strings.ToUpper(hash("b"))+"\"\n  owner: zenith\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Key{
		{SHA256: sha256.Sum256([]byte("a")), Owner: "acme", Tenant: "shop", Plan: "paid"},
		{SHA256: sha256.Sum256([]byte("b")), Owner: "zenith"},
	}
	for _, k := range want {
		if got, ok := c.HTTP.Keys.Find(k.SHA256); !ok || got != (Holder{k.Owner, k.Tenant, k.Plan}) {
			t.Errorf("%x: %+v, want %+v", k.SHA256, got, k)
		}
	}
	if n := c.HTTP.Keys.Len(); n != len(want) {
		t.Errorf("%d keys, want %d", n, len(want))
	}
	if c.HTTP.KeyHeader != "X-Api-Key" || c.HTTP.KeyFile != "keys.yaml" {
		t.Errorf("header %q, file %q", c.HTTP.KeyHeader, c.HTTP.KeyFile)
	}
}

// A hash may look like a number to YAML.
func TestKeyHashOfDigits(t *testing.T) {
	for _, text := range []string{strings.Repeat("12345678", 8), strings.Repeat("1", 62) + "e1", "0" + strings.Repeat("7", 63)} {
		c, err := parseWithKeys(t, "- {sha256: "+text+", owner: acme}\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		sum, _ := hex.DecodeString(text)
		if _, ok := c.HTTP.Keys.Find([32]byte(sum)); !ok || c.HTTP.Keys.Len() != 1 {
			t.Errorf("%s is not found", text)
		}
	}
}

func TestKeyFileFaults(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "keys.yaml:1:1: the key file is a list, not nothing"},
		{"mapping", "owner: acme\n", "keys.yaml:1:1: the key file is a list, not a mapping"},
		{"clear text", "- {sha256: s3cr3t-key, owner: acme}\n", "keys.yaml:1:12: sha256 is not 64 hex digits…printf %s KEY | sha256sum"},
		{"hex clear text", "- {sha256: \"5ec2e7\", owner: acme}\n", "keys.yaml:1:12: sha256 has 6 hex digits, not 64…sha256sum"},
		{"clear text under key", "- {key: s3cr3t-key, owner: acme}\n", "keys.yaml:1:4: `key` holds a key in clear text: write `sha256`"},
		{"clear text as list", "- {sha256: [s3cr3t-key], owner: acme}\n", "keys.yaml:1:12: `sha256` is 64 hex digits, not a list"},
		{"hash of nothing", "- {sha256: " + hash("") + ", owner: acme}\n", "keys.yaml:1:12: sha256 is the hash of nothing"},
		{"no owner", "- {sha256: " + hash("a") + "}\n", "keys.yaml:1:3: `owner` is missing in an item of the key file"},
		{"typo", "- {sha256: " + hash("a") + ", owenr: acme}\n", "keys.yaml:1:78: unknown key `owenr`: did you mean `owner`?"},
		{"twice", "- {sha256: " + hash("a") + ", owner: x}\n- {sha256: " + hash("a") + ", owner: y}\n", "keys.yaml:2:12: the key is there twice, first in line 1"},
		{"long owner", "- {sha256: " + hash("a") + ", owner: " + strings.Repeat("x", 129) + "}\n", "keys.yaml:1:85: owner of 129 bytes: the most is 128"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseWithKeys(t, tc.in)
			if err == nil {
				t.Fatal("accepted")
			}
			if first, _, _ := strings.Cut(tc.want, "\n"); !strings.Contains(err.Error(), strings.Split(first, "…")[0]) {
				t.Errorf("\n got: %v\nwant: %s", err, tc.want)
			}
			if n := strings.Count(tc.want, "\n"); strings.Count(err.Error(), "\n") != n {
				t.Errorf("want %d faults:\n%v", n+1, err)
			}
			if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "5ec2e7") {
				t.Errorf("the message holds the key: %v", err)
			}
		})
	}
}

func TestKeyFileMissing(t *testing.T) {
	_, err := Parse("nowhere/headgate.yaml", []byte(withKeys+"mode: on\n"))
	wantErrors(t, err,
		"nowhere/headgate.yaml:2:52: read key file: open nowhere/keys.yaml: ",
		"nowhere/headgate.yaml:3:7: \"on\" is no `mode`")
}

// Faults of the config come before those of the key file.
func TestFaultsOfTwoFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("- 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "z.yaml")
	_, err := Parse(name, []byte("version: 1\nhttp: {identities: {key: {header: K, file: "+filepath.Join(dir, "a.yaml")+"}}}\nmode: on\n"))
	wantErrors(t, err, name+":3:7: ", filepath.Join(dir, "a.yaml")+":1:3: ")
}
