// Package await lets a test wait for what must come.
package await

import (
	"testing"
	"time"
)

// patience is how long a test waits; only one that fails waits that long.
const patience = 30 * time.Second

// For waits until ok holds, and fails t where it does not come to.
func For(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
