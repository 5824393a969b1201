package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// report runs testsum on packages of one file each, by the real go test.
func report(t *testing.T, packages map[string]string) (lines []string, code int) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example\n\ngo 1.26\n")
	for name, body := range packages {
		write(name+"/x_test.go", "package "+name+"\n\nimport \"testing\"\n\n"+body)
	}
	var out strings.Builder
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = dir
	code, err := run(&out, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report:\n%s", out.String())
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), code
}

func TestReport(t *testing.T) {
	tests := []struct {
		name     string
		packages map[string]string
		last     string
		code     int
		contains []string
	}{
		{
			"all pass; subtests count, their parent does not",
			map[string]string{"a": `func TestA(t *testing.T) { t.Run("x", func(t *testing.T) {}); t.Run("y", func(t *testing.T) {}) }
func TestB(t *testing.T) {}`},
			"3 passed, 0 failed, 0 skipped", 0, nil,
		},
		{
			"skips are told with their reasons",
			map[string]string{"a": `func TestA(t *testing.T) { t.Skip("needs a moon") }
func TestB(t *testing.T) { t.Log("first"); t.Run("x", func(t *testing.T) { t.Skipf("needs a %s", "moon") }) }
func TestC(t *testing.T) { t.SkipNow() }`},
			"0 passed, 0 failed, 3 skipped", 0,
			[]string{"skipped 2: needs a moon", "skipped 1: no reason given"},
		},
		{
			"a failure is shown whole, and fails",
			map[string]string{
				"a": `func TestA(t *testing.T) { t.Log("about to"); t.Run("x", func(t *testing.T) { t.Error("broken") }) }`,
				"b": `func TestB(t *testing.T) {}`,
			},
			"1 passed, 1 failed, 0 skipped", 1,
			[]string{"    x_test.go:5: about to", "    x_test.go:5: broken"},
		},
		{
			"a parent's own failure counts",
			map[string]string{"a": `func TestA(t *testing.T) { t.Run("x", func(t *testing.T) {}); t.Error("afterwards") }`},
			"1 passed, 1 failed, 0 skipped", 1, []string{"    x_test.go:5: afterwards"},
		},
		{
			"a panic fails the test that it ends",
			map[string]string{"a": `func TestA(t *testing.T) { t.Run("x", func(t *testing.T) { panic("dead") }) }`},
			"0 passed, 1 failed, 0 skipped", 1, []string{"panic: dead [recovered, repanicked]"},
		},
		{
			"an exit fails the package",
			map[string]string{"a": `import "os"
func TestMain(m *testing.M) { os.Exit(3) }`},
			"0 passed, 1 failed, 0 skipped", 1, nil,
		},
		{
			"what does not build fails",
			map[string]string{"a": `func TestA(t *testing.T) { undefined() }`},
			"0 passed, 1 failed, 0 skipped", 1, []string{"a/x_test.go:5:28: undefined: undefined"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lines, code := report(t, tt.packages)
			if last := lines[len(lines)-1]; last != tt.last || code != tt.code {
				t.Errorf("got %q, exit %d; want %q, exit %d", last, code, tt.last, tt.code)
			}
			for _, want := range tt.contains {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q", want)
				}
			}
		})
	}
}

// What stands beside the events, such as a tool's warning, is passed on.
func TestForeignLines(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	if err := s.read(strings.NewReader("go: warning\n")); err != nil {
		t.Fatal(err)
	}
	s.close()
	if want := "go: warning\n0 passed, 0 failed, 0 skipped\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
