package main

import (
	"slices"
	"strings"
	"testing"
)

// What Debian's archive lists beside the kernels themselves, and in an order
// of its own.
var archiveNames = []string{
	"linux-image-cloud-amd64", "linux-image-6.1-cloud-amd64", "linux-image-6.1-cloud-amd64-dbg",
	"linux-image-6.1.0-9-cloud-amd64", "linux-image-6.1.0-50-cloud-amd64", "linux-image-6.1.0-0.deb11.52-cloud-amd64",
	"linux-image-6.1.0-50-cloud-amd64-dbg", "linux-image-6.1.0-51-cloud-amd64-unsigned", "linux-image-6.1.0-52-amd64",
	"linux-image-6.12.95+deb12-cloud-amd64", "linux-image-6.12.117+deb13-cloud-amd64", "linux-image-6.12.94+deb12-cloud-amd64",
	"linux-headers-6.12.200+deb13-cloud-amd64", "linux-image-6.12.118+deb13-rt-amd64",
	"linux-image-5.10.0-46-cloud-amd64", "linux-image-5.10.0-9-cloud-amd64",
	"linux-image-7.2.13+deb14-cloud-amd64", "linux-image-7.3.4+deb13-cloud-amd64", "linux-image-7.10.1+deb14-cloud-amd64",
	"linux-binary-7.10.1+deb14-cloud-amd64", "linux-modules-7.10.1+deb14-cloud-amd64", "linux-modules-7.3.4+deb13-cloud-amd64",
}

// The newest of each series is chosen, by number and not by letter, and never
// what only belongs to it.
func TestChoose(t *testing.T) {
	want := map[string]string{
		"5.10": "linux-image-5.10.0-46-cloud-amd64",
		"6.1":  "linux-image-6.1.0-50-cloud-amd64",
		"6.12": "linux-image-6.12.117+deb13-cloud-amd64",
		"6.18": "", // not in the archive
		"7.x":  "linux-image-7.10.1+deb14-cloud-amd64",
	}
	for _, s := range wanted {
		if got := s.choose(archiveNames); got != want[s.name] {
			t.Errorf("%s: chose %q, want %q", s.name, got, want[s.name])
		}
	}
}

func TestParts(t *testing.T) {
	got := parts("linux-image-7.10.1+deb14-cloud-amd64", archiveNames)
	want := []string{"linux-image-7.10.1+deb14-cloud-amd64", "linux-binary-7.10.1+deb14-cloud-amd64", "linux-modules-7.10.1+deb14-cloud-amd64"}
	if !slices.Equal(got, want) {
		t.Errorf("an image in parts: %v, want %v", got, want)
	}
	if got := parts("linux-image-6.1.0-50-cloud-amd64", archiveNames); len(got) != 1 {
		t.Errorf("an image in one: %v", got)
	}
}

func TestSourcesList(t *testing.T) {
	got := sourcesList("http://mirror.example/debian/")
	for _, want := range []string{
		"deb [signed-by=" + keyring + "] http://mirror.example/debian trixie-backports main\n",
		"deb [signed-by=" + keyring + "] http://mirror.example/debian-security bullseye-security main\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}
