package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswers(t *testing.T) {
	got := mustParse(t, `version: 1
http:
  listeners: [{address: ":80", upstream: "http://a"}, {address: ":81", upstream: "http://a", dialect: none}]
  answers: {dialect: x-ratelimit, reset: epoch, jitter: 25%, cors: {origins: [https://app.example, "http://[::1]:3000"]}}
`).HTTP
	want := Answers{
		Dialect: XRateLimit, Reset: ResetEpoch, Jitter: 25,
		CORS: CORS{Origins: []string{"https://app.example", "http://[::1]:3000"}},
	}
	if diff := cmp.Diff(want, got.Answers); diff != "" {
		t.Error(diff)
	}
	if got.Listeners[0].Dialect != "" || got.Listeners[1].Dialect != NoDialect {
		t.Errorf("listeners %+v", got.Listeners)
	}
}

func TestAnswersFaults(t *testing.T) {
	_, err := Parse("f", []byte(`version: 1
http:
  dialect: ietf
  listeners: [{address: ":80", upstream: "http://a", dialect: draft-7}]
  answers:
    dialect: githup
    reset: date
    jitter: 10
    body: {type: html}
    cors:
      origins: ["*", "null", app.example, "https://*.app.example", https://app.example/x, https://App.example, https://app.example:443, https://ok, https://ok]
`))
	wantErrors(t, err,
		"f:3:3: `dialect` belongs in `http.answers`, not in `http`",
		"f:4:63: \"draft-7\" is no `dialect`: use ietf, ietf-12, x-ratelimit, github or none",
		"f:6:14: \"githup\" is no `dialect`: did you mean `github`?",
		"f:7:12: \"date\" is no `reset`: use delta or epoch",
		"f:8:13: jitter \"10\": write a percentage",
		"f:9:11: `file` is missing",
		"f:11:17: \"*\" is every origin: write it alone",
		"f:11:22: origin \"null\": any page",
		"f:11:30: origin \"app.example\": write scheme and host",
		"f:11:43: origin \"https://*.app.example\": write each origin out",
		"f:11:68: origin \"https://app.example/x\": write it without path",
		"f:11:91: origin \"https://App.example\": write it in lower case",
		"f:11:112: origin \"https://app.example:443\": leave out the port",
		"f:11:149: origin \"https://ok\" is there twice",
	)
}

func TestBody(t *testing.T) {
	dir := t.TempDir()
	load := func(body, kind string) (*Config, error) {
		if err := os.WriteFile(filepath.Join(dir, "body"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		text := "version: 1\nhttp: {answers: {body: {file: body, type: " + kind + "}}}\n"
		return Parse(filepath.Join(dir, "headgate.yaml"), []byte(text))
	}
	c, err := load("<p>{{.Rule}}", "text/html")
	if err != nil {
		t.Fatal(err)
	}
	b := c.HTTP.Answers.Body
	if b.Type != "text/html; charset=utf-8" || b.Text != "<p>{{.Rule}}" {
		t.Errorf("body %+v", b)
	}
	fill := func(b Body) string {
		tmpl, err := b.Template()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := tmpl.Execute(&out, Refusal{Rule: "a<b"}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := fill(b); got != "<p>a&lt;b" {
		t.Errorf("HTML: %s", got)
	}
	if b.Type = "text/plain"; fill(b) != "<p>a<b" {
		t.Errorf("text: %s", fill(b))
	}
	for body, part := range map[string]string{
		"{{.Client}}":       "can't evaluate field Client",
		"{{if}}":            "missing value for if",
		"{{.Rule":           "unclosed action",
		"{{slice .Rule 9}}": "out of range",
	} {
		if _, err := load(body, "text/html"); err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), ":2:31: body ") {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := load("", "nonsense"); err == nil || !strings.Contains(err.Error(), "write a media type") {
		t.Errorf("type: %v", err)
	}
	os.Remove(filepath.Join(dir, "body"))
	if _, err := Parse(filepath.Join(dir, "headgate.yaml"), []byte("version: 1\nhttp: {answers: {body: {file: body}}}\n")); err == nil || !strings.Contains(err.Error(), "read body: ") {
		t.Errorf("no file: %v", err)
	}
}
