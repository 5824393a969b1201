package l7

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/config"
)

// block is one fenced block of a document: its language and its text.
type block struct{ kind, text string }

func blocksOf(t *testing.T, path string) (all []block) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(data), -1) {
		all = append(all, block{m[1], m[2]})
	}
	return all
}

// TestDocumentedAnswers runs the examples of docs/answers.md: each request under
// the config above it is answered as it says.
func TestDocumentedAnswers(t *testing.T) {
	all := blocksOf(t, "../docs/answers.md")
	base, text, answers := all[0].text, all[0].text, 0
	for _, b := range all[1:] {
		if b.kind == "yaml" {
			text = strings.Replace(base, "http:\n", b.text, 1)
			continue
		}
		cfg, err := config.Parse("../docs/example.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		answers++
		checkDocumented(t, cfg, b.text)
	}
	if answers < 10 {
		t.Errorf("%d examples: are they still found?", answers)
	}
}

func checkDocumented(t *testing.T, cfg *config.Config, text string) {
	t.Helper()
	request, rest, _ := strings.Cut(text, "\n\n")
	head, body, _ := strings.Cut(rest, "\n\n")
	lines := strings.Split(strings.ReplaceAll(request, "> ", ""), "\n")
	ask := strings.Fields(lines[0])
	headers := lines[1:]
	if ask[0] == "POST" {
		headers = append(headers, "Content-Length: 0")
	}
	c := newDatedRig(t, Policy{HTTP: cfg.HTTP, Rules: cfg.Rules}, time.Unix(1_800_000_000, 0)).client("127.0.0.2")
	got := c.do(ask[0], ask[1], headers...)
	fields := strings.Split(strings.TrimSpace(head), "\n")
	if strings.Contains(head, " 429 ") || strings.Contains(head, "Grpc-Status: 8") {
		for range 5 {
			got = c.do(ask[0], ask[1], headers...)
		}
	}
	want(t, text, strings.Contains(fields[0], " "+strconv.Itoa(got.status)+" "), true)
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, ": ")
		want(t, name, masked(strings.Join(got.header[http.CanonicalHeaderKey(name)], ", ")), masked(value))
	}
	if body != "" {
		want(t, "body", masked(strings.TrimSpace(got.body)), masked(strings.TrimSpace(body)))
	}
	shown := regexp.MustCompile(`(?m)^(X-)?RateLimit[A-Za-z-]*:`).FindAllString(head, -1)
	if n := len(limitFields(got.header)); len(shown) > 0 && len(shown) != n {
		t.Errorf("%s\nshows %d of %d fields that tell limits", text, len(shown), n)
	}
}

// masked hides what differs from run to run: partition keys and request ids.
func masked(s string) string {
	s = regexp.MustCompile(`pk=:[0-9A-Za-z+/=]{12}:`).ReplaceAllString(s, "pk")
	return regexp.MustCompile(`\bAW[0-9A-Za-z_-]{40,}`).ReplaceAllString(s, "ID")
}
