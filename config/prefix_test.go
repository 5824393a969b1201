package config

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParsePrefix(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"192.0.2.0/24", "192.0.2.0/24"},
		{"192.0.2.1", "192.0.2.1/32"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"2001:db8::/32", "2001:db8::/32"},
		{"2001:DB8::1", "2001:db8::1/128"},
		{"::/0", "::/0"},
		{"::ffff:192.0.2.1", "192.0.2.1/32"},
		{"::ffff:192.0.2.0/120", "192.0.2.0/24"},
		{"::ffff:0.0.0.0/96", "0.0.0.0/0"},
		{"64:ff9b::192.0.2.1", "64:ff9b::c000:201/128"},
	} {
		got, err := ParsePrefix(tc.in)
		if err != nil || got.String() != tc.want {
			t.Errorf("ParsePrefix(%q) = %v, %v; want %s", tc.in, got, err, tc.want)
		}
	}
}

func TestParsePrefixRefuses(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "empty"},
		{"192.0.2.1/24", "write 192.0.2.0/24, or 192.0.2.1/32"},
		{"2001:db8::1/64", "write 2001:db8::/64, or 2001:db8::1/128"},
		{"::ffff:192.0.2.1/120", "write 192.0.2.0/24, or 192.0.2.1/32"},
		{"::ffff:192.0.2.0/80", "write ::/80"},
		{"192.0.2.0/33", "up to /32"},
		{"192.0.2.0/024", "leading zero"},
		{"192.0.2.0/", "length"},
		{"192.0.2.0/-1", "length"},
		{"192.0.2.0/255.255.255.0", "not a mask"},
		{"192.0.2.0-192.0.2.255", "range"},
		{"192.0.2.*", "wildcard"},
		{"192.0.2.1:80", "without a port"},
		{"[2001:db8::1]:80", "without brackets"},
		{"fe80::1%eth0", "zone"},
		{"fe80::%eth0/64", "zone"},
		{"192.0.2", "such as"},
		{"192.00.2.1", "such as"},
		{"3232235777", "such as"},
		{"0xc0.0.2.1", "such as"},
		{"example.com", "names are not looked up"},
		{" 192.0.2.1", "such as"},
		{strings.Repeat("1", 100000), "too long"},
	} {
		got, err := ParsePrefix(tc.in)
		if err == nil {
			t.Errorf("ParsePrefix(%.40q) = %v, want an error", tc.in, got)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, tc.want) || len(msg) > 300 {
			t.Errorf("ParsePrefix(%.40q): %s; want %q in it", tc.in, msg, tc.want)
		}
	}
}

// Whatever is accepted is in the one form that packets are compared with, and
// reads back to itself.
func TestParsePrefixNormal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")
		if rapid.Bool().Draw(t, "six") {
			raw = rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")
		}
		addr, _ := netip.AddrFromSlice(raw)
		in := netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits"))
		got, err := ParsePrefix(in.Masked().String())
		if err != nil {
			t.Fatal(err)
		}
		if got != got.Masked() || got.Addr().Is4In6() && got.Bits() >= 96 {
			t.Fatalf("%v became %v", in, got)
		}
		if again, err := ParsePrefix(got.String()); err != nil || again != got {
			t.Fatalf("%v reads back as %v, %v", got, again, err)
		}
		if in != in.Masked() {
			if p, err := ParsePrefix(in.String()); err == nil {
				t.Fatalf("%v with host bits became %v", in, p)
			}
		}
	})
}
