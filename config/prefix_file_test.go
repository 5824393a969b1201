package config

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// RC-142: published lists as they come, every broken line named at once, with
// its number and how to mend it.
func TestReadPrefixes(t *testing.T) {
	text := "\xef\xbb\xbf# drop list\r\n" +
		"192.0.2.0/24 ; SBL1\r\n" +
		"\r\n" +
		"  203.0.113.9\t# one host\r\n" +
		"176.221.42.3254.174.140.223\r\n" +
		"1.2.3.4/33\r\n" +
		"1.2.3.4-1.2.3.9\r\n" +
		"::ffff:198.51.100.7\r\n" +
		"203.0.113.9/32\r\n" +
		"10.0.0.1/8\r\n" +
		"; 2001:db8::/32 is not listed\r\n" +
		"2001:db8:1::/48\r\n" +
		"192.0.2.1 192.0.2.2\r\n" +
		"0.0.0.0/0\r\n" +
		"2001:db8::1%eth0\r\n" +
		"example.com"
	f, err := ReadPrefixes("drop.txt", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.Prefixes); got != "[192.0.2.0/24 198.51.100.7/32 203.0.113.9/32 2001:db8:1::/48]" {
		t.Errorf("read %s", got)
	}
	if f.Twice != 1 {
		t.Errorf("%d lines were there twice, want 1", f.Twice)
	}
	want := []string{
		"5 glued together",
		"6 up to /32",
		"7 write 1.2.3.4/30, 1.2.3.8/31, one a line",
		"10 write 10.0.0.0/8, or 10.0.0.1/32",
		"13 write one a line",
		"14 every address",
		"15 zone",
		"16 names are not looked up",
	}
	if len(f.Broken) != len(want) {
		t.Fatalf("%d broken lines, want %d: %v", len(f.Broken), len(want), f.Broken)
	}
	for i, w := range want {
		var line int
		fmt.Sscan(w, &line)
		_, says, _ := strings.Cut(w, " ")
		if e := f.Broken[i]; e.Line != line || e.File != "drop.txt" || !strings.Contains(e.Msg, says) {
			t.Errorf("%v, want line %d and %q", e, line, says)
		}
	}
}

// What cannot be read to its end is no list.
func TestReadPrefixesRefuses(t *testing.T) {
	if _, err := ReadPrefixes("f", iotest.ErrReader(fmt.Errorf("disk gone"))); err == nil || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("an error of reading: %v", err)
	}
	if _, err := ReadPrefixes("f", strings.NewReader("192.0.2.1\n"+strings.Repeat("a", longestLine+1))); err == nil || !strings.Contains(err.Error(), "line 2 is longer") {
		t.Errorf("an endless line: %v", err)
	}
	if _, err := ReadPrefixes("f", &comments{left: LongestList + 1}); err == nil || !strings.Contains(err.Error(), "64 MB") {
		t.Errorf("an endless file: %v", err)
	}
	if f, err := ReadPrefixes("f", &comments{left: LongestList}); err != nil || len(f.Prefixes) != 0 {
		t.Errorf("the largest file: %v", err)
	}
}

// comments reads as empty comments.
type comments struct{ left int }

func (c *comments) Read(p []byte) (int, error) {
	p = p[:min(len(p), c.left, 1<<16)]
	for i := range p {
		p[i] = "#\n"[i%2]
	}
	if c.left -= len(p); len(p) == 0 {
		return 0, io.EOF
	}
	return len(p), nil
}

func TestSpanning(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"1.2.3.4", "1.2.3.4", "1.2.3.4"},
		{"1.2.3.0", "1.2.3.255", "1.2.3.0/24"},
		{"1.2.3.1", "1.2.3.6", "1.2.3.1 1.2.3.2/31 1.2.3.4/31 1.2.3.6"},
		{"0.0.0.0", "255.255.255.255", "0.0.0.0/0"},
		{"255.255.255.254", "255.255.255.255", "255.255.255.254/31"},
		{"2001:db8::", "2001:db8::1", "2001:db8::/127"},
		{"0.0.0.1", "255.255.255.254", ""},
	} {
		got := spanning(netip.MustParseAddr(c.from), netip.MustParseAddr(c.to), 8)
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s-%s: %v, want %s", c.from, c.to, got, c.want)
		}
	}
}
