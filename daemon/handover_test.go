package daemon

import (
	"net/netip"
	"testing"
)

// A socket that was handed over belongs to the listener that would have opened
// the very same.
func TestBoundTo(t *testing.T) {
	for _, c := range []struct {
		bound, address string
		want           bool
	}{
		{"[::]:8080", ":8080", true},
		{"0.0.0.0:8080", ":8080", true},
		{"[::]:8080", "[::]:8080", true},
		{"[::]:8080", "0.0.0.0:8080", false}, // would not take IPv6
		{"[::]:8081", ":8080", false},
		{"127.0.0.1:8080", ":8080", false},
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"[::ffff:127.0.0.1]:8080", "127.0.0.1:8080", true},
		{"[2001:db8::1]:443", "[2001:db8:0::1]:443", true},
		{"[2001:db8::1]:443", "[2001:db8::2]:443", false},
		{"127.0.0.1:8080", "127.0.0.1:0", false},
		{"127.0.0.1:8080", "no address", false},
	} {
		if got := boundTo(plain(netip.MustParseAddrPort(c.bound)), c.address); got != c.want {
			t.Errorf("a socket on %s for a listener on %q: %v, want %v", c.bound, c.address, got, c.want)
		}
	}
}

// Names in the manager's store are joined by colons.
func TestNamesInStore(t *testing.T) {
	if got, want := nameInStore("[2001:db8::1]:443"), "headgate-http-[2001_db8__1]_443"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
