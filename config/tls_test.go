package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/selfsigned"
)

// loadReference reads the reference with certificates in the place of those that
// it names and that no repository holds.
func loadReference(t *testing.T) (*Config, error) {
	cert, key := selfsigned.Pair(t, time.Now().Add(time.Hour), "reference.example")
	r := &reader{file: reference, readKeys: ReadKeys, read: func(path string, most int64) ([]byte, error) {
		switch filepath.Base(path) {
		case "reference-cert.pem":
			return cert, nil
		case "reference-key.pem":
			return key, nil
		}
		return readFile(path, most)
	}}
	c := r.config([]byte(readReference(t)))
	return c, r.errs.sorted(reference).err()
}

// A listener's certificates are read with the config, each pair of files once.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ends := time.Now().Add(40 * 24 * time.Hour).Truncate(time.Second)
	cert, key := selfsigned.Pair(t, ends, "a.example")
	otherCert, otherKey := selfsigned.Pair(t, ends, "b.example")
	for name, data := range map[string][]byte{
		"a.pem": cert, "a.key": key, "b.pem": otherCert, "b.key": otherKey, "bad.pem": []byte("no PEM"),
		"chain.pem": append(cert, otherCert...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parse := func(http string) (*Config, error) {
		return Parse(filepath.Join(dir, "headgate.yaml"), []byte("version: 1\nhttp: "+http+"\n"))
	}
	pair := func(cert, key string) string { return "{cert_file: " + cert + ", key_file: " + key + "}" }
	c, err := parse(`{upstream: "http://a", listeners: [{address: ":1", tls: {certificates: [` + pair("a.pem", "a.key") + `]}}, ` +
		`{address: ":2", tls: {min_version: 1.3, certificates: [` + pair("a.pem", "a.key") + ", " + pair("b.pem", "b.key") + `]}}, {address: ":3"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.HTTP.Certificates) != 2 || !c.HTTP.Certificates[0].Ends.Equal(ends) || string(c.HTTP.Certificates[0].Key) != string(key) {
		t.Errorf("certificates %+v", c.HTTP.Certificates)
	}
	l := c.HTTP.Listeners
	if l[0].TLS.MinVersion != "1.2" || l[1].TLS.MinVersion != "1.3" || len(l[1].TLS.Certificates) != 2 || l[2].TLS != nil {
		t.Errorf("listeners %+v", l)
	}
	if c, err = parse(`{listen: ":1", upstream: "http://a", tls: {certificates: [` + pair("chain.pem", "a.key") + `]}}`); err != nil || c.HTTP.Listeners[0].TLS == nil {
		t.Errorf("short form: %v", err)
	}
	for in, want := range map[string]string{
		`{certificates: [` + pair("a.pem", "b.key") + `]}`:    `certificate "a.pem" with key "b.key": …belong together`,
		`{certificates: [` + pair("bad.pem", "a.key") + `]}`:  `certificate "bad.pem"`,
		`{certificates: [` + pair("none.pem", "a.key") + `]}`: "read certificate: …none.pem",
		`{certificates: [` + pair("a.pem", "none.key") + `]}`: "read certificate's key: …none.key",
		`{certificates: []}`: "`certificates` is empty",
		`{min_version: 1.2}`: "`certificates` is missing",
		`{min_version: 1.1, certificates: [` + pair("a.pem", "a.key") + `]}`:               `min_version "1.1": use 1.2 or 1.3`,
		`{certificates: [{cert_file: a.pem}]}`:                                             "`key_file` is missing",
		`{certificates: [{cert_file: a.pem, keyfile: a.key}]}`:                             "unknown key `keyfile`: did you mean `key_file`?",
		`{certificates: [{cert_file: a.pem, key_file: a.key, ca: x}]}`:                     "unknown key `ca`",
		`{certificate: [` + pair("a.pem", "a.key") + `]}`:                                  "unknown key `certificate`: did you mean `certificates`?",
		`{certificates: [` + pair("a.pem", "a.key") + `], min_version: 1.2, ciphers: [x]}`: "unknown key `ciphers`",
	} {
		_, err := parse(`{listen: ":1", upstream: "http://a", tls: ` + in + `}`)
		if err == nil || !strings.Contains(err.Error(), ":2:") {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if _, msg, _ := strings.Cut(err.Error(), ":2:"); !hasParts(msg[strings.IndexByte(msg, ' ')+1:], want) {
			t.Errorf("%s:\n got: %v\nwant: %s", in, err, want)
		}
	}
	if _, err := parse(`{upstream: "http://a", tls: {certificates: [` + pair("a.pem", "a.key") + `]}, listeners: [{address: ":1"}]}`); err == nil {
		t.Error("tls beside listeners was taken")
	}
}
