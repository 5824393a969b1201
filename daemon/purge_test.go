package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/folderlock"
)

func TestPurge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, name := range []string{"lists", "imports"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	others := filepath.Join(dir, "somebodys")
	for _, path := range []string{filepath.Join(dir, "state.json"), filepath.Join(dir, "lists", "drop"), filepath.Join(dir, ".state.json123456"), others} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := folderlock.Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Purge(dir); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("with a daemon alive: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err != nil {
		t.Errorf("with a daemon alive: %v", err)
	}
	lock.Close()
	if err := Purge(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "somebodys" {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing
		if err := Purge(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
