package l7

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/logbuffer"
)

// What docs/identities.md shows is what happens: each example is put in force,
// and the requests in its comments are sent.
func TestIdentitiesDoc(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/identities.md")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile("../docs/reference-keys.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sign, verify := tokenKey(t, "", "EdDSA")
	dir := t.TempDir()
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("keys.yaml", keys)
	put("jwks.json", jwksOf(t, verify))

	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	want(t, "examples", len(examples), 7)
	request := regexp.MustCompile(`(?m)^# (\d) of (\d) pass from (\S+)(?: after (PROXY .*?))?(?: with (.*))?$`)
	for i, e := range examples {
		c, err := config.Parse(filepath.Join(dir, "headgate.yaml"), []byte(e[1]))
		if err != nil {
			t.Fatalf("example %d: %v", i+1, err)
		}
		r := docRig(t, c)
		requests := request.FindAllStringSubmatch(e[1], -1)
		want(t, "comments that are requests", len(requests), strings.Count(e[1], "\n# "))
		for _, q := range requests {
			client := r.client(q[3])
			if q[4] != "" {
				io.WriteString(client.conn, q[4]+"\r\n")
			}
			var headers []string
			if header := q[5]; header != "" {
				headers = append(headers, regexp.MustCompile(`TOKEN-of-(\w+)(-made-up)?`).ReplaceAllStringFunc(header, func(name string) string {
					user, madeUp := strings.CutSuffix(strings.TrimPrefix(name, "TOKEN-of-"), "-made-up")
					token := tokenOf(t, "EdDSA", sign, nil, jwt.MapClaims{"sub": user})
					if madeUp {
						token = token[:len(token)-8] + "AAAAAAAA"
					}
					return token
				}))
			}
			n, _ := strconv.Atoi(q[2])
			want(t, q[0], strconv.Itoa(client.passed(n, headers...)), q[1])
		}
	}
}

// docRig serves c's first listener.
func docRig(t *testing.T, c *config.Config) *rig {
	t.Helper()
	r := &rig{t: t, logs: new(logbuffer.Buffer), served: make(chan error, 1), tune: func(g *Gate) { g.Wall = func() time.Time { return today } }}
	up := httptest.NewServer(http.HandlerFunc(r.record))
	t.Cleanup(up.Close)
	l := c.HTTP.Listeners[0]
	l.Upstream = up.URL
	r.startAs(Policy{HTTP: c.HTTP, Rules: c.Rules}, "127.0.0.1:0", l)
	return r
}

// jwksOf writes an Ed25519 key as a JWKS (RFC 8037).
func jwksOf(t *testing.T, k config.TokenKey) []byte {
	t.Helper()
	x := k.Public[len(k.Public)-32:]
	b, err := json.Marshal(map[string]any{"keys": []any{map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(x)}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
