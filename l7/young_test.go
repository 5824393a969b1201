package l7

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A server that stops waits for connections that have yet to bring their first
// request or are being answered, but not long for one that stays silent.
func TestYoungConnections(t *testing.T) {
	for name, c := range map[string]struct {
		then http.ConnState
		want time.Duration
	}{
		"answered": {http.StateIdle, 100 * time.Millisecond},
		"closed":   {http.StateClosed, 100 * time.Millisecond},
		"upgraded": {http.StateHijacked, 100 * time.Millisecond},
		"active":   {http.StateActive, youngTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var y young
				conn, other := net.Pipe()
				defer conn.Close()
				defer other.Close()
				y.follow(other, http.StateNew)
				y.follow(other, http.StateIdle)
				y.follow(conn, http.StateNew)
				time.AfterFunc(c.want, func() { y.follow(conn, c.then) })
				if c.then == http.StateActive {
					y.follow(conn, http.StateActive)
				}
				begin := time.Now()
				y.wait(youngTime)
				if took := time.Since(begin); took < c.want || took > c.want+10*time.Millisecond {
					t.Errorf("waited %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestNoYoungConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		new(young).wait(youngTime)
		if took := time.Since(begin); took != 0 {
			t.Errorf("waited %v for nothing", took)
		}
	})
}
