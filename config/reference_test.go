package config

import (
	"crypto/sha256"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/google/go-cmp/cmp"
)

const reference = "../docs/reference.yaml"

// alternatives are keys that cannot stand beside another: the reference has
// them in a comment, and TestReferenceAlternatives reads them in its place.
var alternatives = []string{"http.listen", "http.identities.user.header", "http.identities.user.key_file", "http.tls",
	"http.upstream", "http.listeners.upstreams", "fleet.redis.sentinel", "fleet.redis.tls.cert_file", "fleet.redis.tls.key_file"}

// TestReferenceReads: what the documentation shows is what the parser accepts
// (RC-031), and means what its comments say.
func TestReferenceReads(t *testing.T) {
	c, err := loadReference(t)
	if err != nil {
		t.Fatal(err)
	}
	p := netip.MustParsePrefix
	shared := []Upstream{
		{
			Hosts: []string{"*.example.com"}, Paths: []string{"/api/**"}, URLs: []string{"http://10.2.0.1:9000", "http://10.2.0.2:9000"},
			Balance: LeastRequests, Check: &HealthCheck{"/healthz", 5 * time.Second},
		},
		{URLs: []string{"http://127.0.0.1:9000"}, Balance: RoundRobin},
	}
	want := &Config{
		Version: 1,
		Mode:    Enforce,
		Network: Network{
			Interfaces: []string{"eth0"}, AttachMode: AttachAuto, Slots: 1 << 20, Repair: true, Leash: 7 * 24 * time.Hour,
			Management: Management{Sources: []netip.Prefix{p("10.0.0.0/8")}, Ports: []Port{{"tcp", 22}}},
		},
		Allow: []netip.Prefix{p("192.0.2.0/24")},
		Block: []netip.Prefix{p("198.51.100.66/32")}, BlockLists: []string{"drop"},
		Lists: []List{
			{Name: "office", File: "office.txt"},
			{
				Name: "drop", URL: "https://lists.example/drop.txt", Interval: 6 * time.Hour,
				SHA256: "207d28c47238e89eee33d9249bdbebeb80dd9b6aab9aed05dff24fe783cbc0c0",
			},
		},
		HTTP: HTTP{
			Listeners: []Listener{
				{Address: ":8080", Door: "proxy", AnswerTimeout: time.Minute, Upstream: "http://127.0.0.1:9001"},
				{Address: "127.0.0.1:8081", Door: "proxy", AnswerTimeout: time.Minute, Upstreams: shared, Dialect: GitHub, ProxyProtocol: true},
				{
					Address: "127.0.0.1:8443", Door: "proxy", AnswerTimeout: time.Minute, Upstreams: shared,
					TLS: &TLS{[]CertificateFiles{{"reference-cert.pem", "reference-key.pem"}}, "1.2"},
				},
			},
			Proxies:   []netip.Prefix{p("10.1.0.0/16")},
			KeyHeader: "X-Api-Key", KeyBearer: true, KeyQuery: "api_key", KeyFile: "reference-keys.yaml", ClientFrom: FromXForwardedFor,
			Users: Users{
				Claim: "sub", JWKSFile: "reference-jwks.json", Issuer: "https://id.example", Audience: "shop",
				Algorithms: []string{"RS256", "ES256"},
			},
			Exempt: []Exempt{{"/healthz", []netip.Prefix{p("10.0.0.0/8")}}},
			User:   "headgate", ClientBits: 64, Memory: 256 << 20, Connections: 256,
			AccessLog: &AccessLog{File: "/var/log/headgate/access.log", Format: JSON, Passed: true, Refused: 10},
			Answers: Answers{
				Dialect: IETF, Reset: ResetDelta, Jitter: 10, CORS: CORS{Origins: []string{"https://app.example"}},
				Body: Body{File: "reference-refused.html", Type: "text/html; charset=utf-8"},
			},
		},
		Admin: Admin{Socket: "/run/headgate/headgate.sock", Listen: "127.0.0.1:9317"},
		State: State{Dir: "/var/lib/headgate", Pins: "/sys/fs/bpf/headgate"},
		Fleet: &Fleet{
			Name: "edge", SecretFile: "reference-fleet.key", Secret: []byte("an-example-of-a-secret-make-your-own"), Hosts: 8,
			Redis: Redis{
				Addresses: []string{"redis:6379"}, User: "headgate", PasswordFile: "reference-redis.pw", Password: "example",
				TLS: &RedisTLS{CAFile: "reference-ca.pem", ServerName: "redis.example", CA: c.Fleet.Redis.TLS.CA},
			},
		},
	}
	got := *c
	got.Rules, got.HTTP.Keys, got.HTTP.Users.Keys, got.HTTP.Certificates, got.HTTP.Answers.Body.Text = nil, nil, nil, nil, ""
	if diff := cmp.Diff(want, &got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("reference (-want +got):\n%s", diff)
	}
	var names []string
	for _, r := range c.Rules {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"per-source", "dns", "syn", "flood", "cap", "login", "api", "search", "exports", "monthly"}) {
		t.Errorf("rules %v", names)
	}
	for key, want := range map[string]Holder{"example-key-1": {"acme", "shop", "paid"}, "example-key-2": {Owner: "zenith"}} {
		if got, ok := c.HTTP.Keys.Find(sha256.Sum256([]byte(key))); !ok || got != want {
			t.Errorf("%s of %d keys: %+v", key, c.HTTP.Keys.Len(), got)
		}
	}
	if r := c.Rules[7]; r.Algorithm != SlidingCounter || r.Rate.Interval != time.Hour {
		t.Errorf("search: %+v", r)
	}
	if w := Warnings(c); len(w) > 0 {
		t.Errorf("the reference gives warnings: %q", w)
	}
}

func TestReferenceAlternatives(t *testing.T) {
	text := readReference(t)
	block := regexp.MustCompile(`(?ms)^  listeners:\n.*?^  # upstream:(.*?)\n.*?^  proxies:`)
	text = block.ReplaceAllString(text, "  upstream:$1\n  proxies:")
	text = strings.Replace(text, "  # listen:", "  listen:", 1)
	c, err := Parse(reference, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := []Listener{{Address: ":8080", Door: "proxy", AnswerTimeout: time.Minute, Upstream: "http://127.0.0.1:9000"}}; !reflect.DeepEqual(c.HTTP.Listeners, want) {
		t.Errorf("listeners %+v, want %+v", c.HTTP.Listeners, want)
	}
}

// TestReferenceIsComplete: the reference has every key of the grammar and no
// other, and says each default as the grammar has it.
func TestReferenceIsComplete(t *testing.T) {
	text := readReference(t)
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{}
	keyLines(file.Docs[0].Body, "", strings.Split(text, "\n"), lines)
	for _, path := range alternatives {
		i := strings.Index(text, "# "+path[strings.LastIndexByte(path, '.')+1:]+":")
		if i < 0 {
			t.Errorf("%s stands in no comment", path)
			continue
		}
		line, _, _ := strings.Cut(text[i:], "\n")
		lines[path] = append(lines[path], line)
	}
	for _, l := range levels {
		for _, k := range l.keys {
			path := strings.TrimPrefix(l.path+"."+k.name, ".")
			at, there := lines[path]
			if !there {
				t.Errorf("%s is missing", path)
			}
			if k.def != "" && !strings.Contains(strings.Join(at, "\n"), "default "+k.def) {
				t.Errorf("%s: no comment says `default %s`: %q", path, k.def, at)
			}
			delete(lines, path)
		}
	}
	delete(lines, "lists.NAME")
	for path := range lines {
		t.Errorf("%s is no key of the grammar", path)
	}
}

// The key file's reference has all of its keys too.
func TestKeyReferenceIsComplete(t *testing.T) {
	data, err := os.ReadFile("../docs/reference-keys.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{}
	keyLines(file.Docs[0].Body, "", strings.Split(string(data), "\n"), lines)
	for _, k := range keyFileLevel.keys {
		if lines[k.name] == nil {
			t.Errorf("%s is missing", k.name)
		}
		delete(lines, k.name)
	}
	if len(lines) > 0 {
		t.Errorf("no keys of the grammar: %v", lines)
	}
}

// What the grammar calls a default is what an absent key means.
func TestDefaultsAreLegal(t *testing.T) {
	absent := mustParse(t, "version: 1\nnetwork: {management: {sources: [10.0.0.0/8]}}\nhttp: {listen: \":80\", upstream: \"http://a\"}\n")
	present := "version: 1\n"
	for _, l := range []*level{networkLevel, httpLevel, adminLevel, stateLevel} {
		present += l.path + ":\n"
		for _, k := range l.keys {
			if k.def != "" {
				present += "  " + k.name + ": " + k.def + "\n"
			}
		}
		switch l {
		case networkLevel:
			def, _ := managementLevel.find("ports")
			present += "  management: {sources: [10.0.0.0/8], ports: [" + def.def + "]}\n"
		case httpLevel:
			def, _ := listenerLevel.find("door")
			present += "  answers: {dialect: ietf, reset: delta, jitter: 0%}\n"
			present += "  listeners: [{address: \":80\", door: " + def.def + ", upstream: \"http://a\"}]\n"
		}
	}
	if diff := cmp.Diff(mustParse(t, present), absent, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("written out (-) and absent (+):\n%s", diff)
	}
}

// Nothing is at once a key and a key of a later version.
func TestLaterIsNotNow(t *testing.T) {
	for _, l := range levels {
		for _, name := range later[l.path] {
			if l.has(name) {
				t.Errorf("%s is both", l.path+"."+name)
			}
			if msg, _ := unknownKey(l, name); !strings.HasPrefix(msg, "this version does not have `"+name+"` yet; remove it") {
				t.Errorf("%s.%s: %s", l.path, name, msg)
			}
		}
		for _, k := range l.keys {
			if slices.Contains(clearKey, k.name) && l == keyFileLevel {
				t.Errorf("%s is both", k.name)
			}
		}
	}
	for name, ours := range foreign {
		if !slices.ContainsFunc(append(levels, keyFileLevel), func(l *level) bool { return l.has(ours) }) {
			t.Errorf("foreign %s stands for %s, which is no key", name, ours)
		}
	}
}

func readReference(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// keyLines collects the lines on which each key stands, by dotted path.
func keyLines(n ast.Node, path string, text []string, into map[string][]string) {
	switch v := n.(type) {
	case *ast.SequenceNode:
		for _, item := range v.Values {
			keyLines(item, path, text, into)
		}
	case *ast.MappingNode:
		for _, p := range v.Values {
			t := p.Key.GetToken()
			inner := strings.TrimPrefix(path+"."+t.Value, ".")
			if path == "lists" {
				inner = "lists.NAME" // it is the user's
			}
			if path == "rules.match.headers" {
				continue // so is each of these
			}
			into[inner] = append(into[inner], text[t.Position.Line-1])
			keyLines(p.Value, inner, text, into)
		}
	}
}
