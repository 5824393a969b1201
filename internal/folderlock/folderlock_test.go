package folderlock

import (
	"strings"
	"testing"
)

func TestTakeNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	first, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Take(dir)
	if want := "already running pid "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("second lock: %v", err)
	}
	first.Close()
	again, err := Take(dir)
	if err != nil {
		t.Fatalf("after the first let go: %v", err)
	}
	again.Close()
}
