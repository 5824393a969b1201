package config

import (
	"os"
	"regexp"
	"testing"
)

// What docs/counting.md shows is a config, and each of its rules reads back.
func TestCountingExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/counting.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d examples, want 1", len(blocks))
	}
	c := mustParse(t, "version: 1\nhttp: {listen: \":80\", upstream: \"http://a\"}\n"+string(blocks[0][1]))
	for _, r := range c.Rules {
		if again, err := ParseRule("text", []byte(r.Text)); err != nil || again.Text != r.Text {
			t.Errorf("%s: %v", r.Text, err)
		}
	}
	if len(c.Rules) != 6 || !c.Rules[0].CountRefused || c.Rules[3].Calendar.TimeZone != "America/Sao_Paulo" {
		t.Errorf("rules %+v", c.Rules)
	}
}
