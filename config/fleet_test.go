package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inFolder parses text as a file of a folder that has a secret and a password.
func inFolder(t *testing.T, text string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{
		"fleet.key": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n", "short.key": "short\n", "empty": "\n", "redis.pw": "pass word\r\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Parse(filepath.Join(dir, "c.yaml"), []byte("version: 1\n"+text))
}

const someFleet = `fleet: {name: edge, secret_file: fleet.key, redis: {addresses: ["r:6379"], user: u, password_file: redis.pw}}
http: {listen: ":8080", upstream: "http://127.0.0.1:1"}
`

func TestFleet(t *testing.T) {
	c, err := inFolder(t, someFleet+`rules:
  - {name: rate, per: client, rate: 10/s}
  - {name: day, per: client, quota: 10/day}
  - {name: window, per: client, limit: 5/min}
  - {name: abuse, per: client, rate: 10/s, count_refused: true}
  - {name: here, per: client, rate: 10/s, scope: host}
  - {name: strict, per: client, rate: 10/s, scope: exact, outage: closed}
  - {name: packets, per: source, rate: 10/s}
`)
	if err != nil {
		t.Fatal(err)
	}
	f := c.Fleet
	if string(f.Secret) != "0123456789abcdef0123456789abcdef" || f.Redis.Password != "pass word" || f.Hosts != 1 || f.Redis.TLS != nil {
		t.Errorf("%+v", f)
	}
	want := []Scope{ScopeFleet, ScopeFleet, ScopeExact, ScopeExact, ScopeHost, ScopeExact, ScopeHost}
	for i, r := range c.Rules {
		if got := r.ScopeIn(f); got != want[i] {
			t.Errorf("%s is counted by %s, want %s", r.Name, got, want[i])
		}
		if r.ScopeIn(nil) != ScopeHost {
			t.Errorf("%s is counted elsewhere without a fleet", r.Name)
		}
	}
	if text := c.Rules[5].Text; !strings.HasSuffix(text, "scope: exact, outage: closed}") {
		t.Errorf("text %s", text)
	}
}

func TestFleetFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"fleet: {name: edge}\n", "`secret_file` is missing in `fleet`: hosts with the same secret share their counts"},
		{"fleet: {name: edge}\n", "`redis` is missing in `fleet`"},
		{"fleet: {name: a_b}\n", "name \"a_b\": use letters, digits, `.` and `-`"},
		{"fleet: {name: a, secret_file: none.key}\n", "read secret_file: "},
		{"fleet: {name: a, secret_file: short.key}\n", "the secret in short.key has 5 bytes: it needs at least 16"},
		{"fleet: {name: a, secret_file: empty}\n", "empty is empty"},
		{"fleet: {name: a, hosts: 0}\n", "hosts \"0\": write a whole number"},
		{"fleet: {name: a, redis: {}}\n", "`addresses` is missing in `fleet.redis`"},
		{"fleet: {name: a, redis: {addresses: [redis]}}\n", "address \"redis\": write host:port"},
		{"fleet: {name: a, redis: {addresses: [\"r:1\"], sentinel: a, cluster: true}}\n", "Redis is watched by sentinels or is a cluster: remove one"},
		{"fleet: {name: a, redis: {tls: {cert_file: a.pem}}}\n", "`cert_file` and `key_file` belong together"},
		{"fleet: {name: a, redis: {tls: {ca_file: redis.pw}}}\n", "redis.pw holds no certificate in PEM"},
		{"rules: [{name: a, per: client, rate: 1/s, scope: fleet}]\n", "`scope: fleet` needs a fleet: add `fleet`, or remove the scope"},
		{"rules: [{name: a, per: client, rate: 1/s, outage: open}]\n", "`outage` needs a fleet"},
		{"rules: [{name: a, per: client, limit: 1/s, scope: fleet}]\n", "only a `rate` or `quota` that counts no refused requests"},
		{"rules: [{name: a, per: source, rate: 1/s, scope: exact}]\n", "counts rules of the network gate on each host"},
		{"rules: [{name: a, per: client, rate: 1/s, scope: all}]\n", "\"all\" is no `scope`"},
		{"rules: [{name: a, per: client, rate: 1/s, outage: off}]\n", "\"off\" is no `outage`"},
		{someFleet + "rules: [{name: a, per: client, rate: 1/s, scope: host, outage: open}]\n", "needs no `outage`"},
	} {
		if _, err := inFolder(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant: %s", c.text, err, c.want)
		}
	}
}

// A rule that asks Redis for more than that carries is warned about.
func TestExactWarning(t *testing.T) {
	for rule, want := range map[string]bool{
		"{name: a, per: client, rate: 20000/s, scope: exact}": true,
		"{name: a, per: client, limit: 20000/s}":              true,
		"{name: a, per: client, rate: 20000/s}":               false,
		"{name: a, per: client, limit: 5000/s}":               false,
	} {
		c, err := inFolder(t, someFleet+"rules: ["+rule+"]\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(Warnings(c), "\n"), "asks Redis for each request"); got != want {
			t.Errorf("%s: warned %v: %v", rule, got, Warnings(c))
		}
	}
}
