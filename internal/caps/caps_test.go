package caps

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for set, want := range map[Set]string{
		0:              "no capability",
		Perfmon:        "CAP_PERFMON",
		NetworkGate:    "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
		OtherUser:      "CAP_SETUID, CAP_SETGID and CAP_KILL",
		BPF | 1<<25:    "CAP_BPF and capability 25",
		NetBindService: "CAP_NET_BIND_SERVICE",
	} {
		if got := set.String(); got != want {
			t.Errorf("%#x is %q, want %q", uint64(set), got, want)
		}
	}
}

// RC-086: with all capabilities there, something else is named.
func TestWhyRefused(t *testing.T) {
	const host, own = "         0          0 4294967295\n", "0 1000 1\n"
	const filtered, free = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", "Name:\tx\nSeccomp:\t0\n"
	for _, c := range []struct{ uids, status, lockdown, want string }{
		{own, free, "", "user namespace"},
		{"0 0 1\n1 100000 65535\n", free, "", "user namespace"},
		{host, filtered, "", "seccomp"},
		{host, free, "none integrity [confidentiality]\n", "locked down"},
		{host, free, "[none] integrity confidentiality\n", "security module"},
		{"", "", "", "security module"},
	} {
		if got := whyRefused([]byte(c.uids), []byte(c.status), []byte(c.lockdown)); !strings.Contains(got, c.want) {
			t.Errorf("%q %q %q: %q, want %q", c.uids, c.status, c.lockdown, got, c.want)
		}
	}
}
