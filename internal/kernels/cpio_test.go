package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// unpack reads an archive as the kernel's init/initramfs.c does: by the sizes
// in each header, names and contents at multiples of four bytes.
func unpack(t *testing.T, archive []byte) (files []file, ended bool) {
	t.Helper()
	const header = 110
	field := func(at, n int) int {
		v, err := strconv.ParseUint(string(archive[at+6+8*n:at+14+8*n]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(v)
	}
	aligned := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; at < len(archive); {
		if string(archive[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		mode, size, length := field(at, 1), field(at, 6), field(at, 11)
		name := archive[at+header : at+header+length]
		if name[length-1] != 0 {
			t.Fatalf("name %q does not end in a zero", name)
		}
		body := aligned(at + header + length)
		if string(name[:length-1]) == "TRAILER!!!" {
			return files, true
		}
		files = append(files, file{string(name[:length-1]), uint32(mode), archive[body : body+size]})
		at = aligned(body + size)
	}
	return files, false
}

func TestCPIO(t *testing.T) {
	in := []file{
		{name: "dev/", mode: 0o755},
		{name: "init", mode: 0o755, content: []byte("a program")},
		{name: "modules/00-x.ko", mode: 0o644, content: bytes.Repeat([]byte{7}, 4097)},
		{name: "empty", mode: 0o600},
	}
	var b bytes.Buffer
	if err := writeCPIO(&b, in); err != nil {
		t.Fatal(err)
	}
	out, ended := unpack(t, b.Bytes())
	if !ended || len(out) != len(in) {
		t.Fatalf("%d entries, trailer %t", len(out), ended)
	}
	for i, want := range []file{
		{"dev", 0o040755, nil}, {"init", 0o100755, in[1].content},
		{"modules/00-x.ko", 0o100644, in[2].content}, {"empty", 0o100600, nil},
	} {
		if got := out[i]; got.name != want.name || got.mode != want.mode || !bytes.Equal(got.content, want.content) {
			t.Errorf("entry %d: %q mode %o, %d bytes", i, got.name, got.mode, len(got.content))
		}
	}
}

// Of unpacked packages the kernel and the known modules are kept, wherever
// they lie, and the machine gets those that others need first.
func TestKeep(t *testing.T) {
	unpacked := t.TempDir()
	for _, name := range []string{
		"boot/vmlinuz-6.1.0-50-cloud-amd64", "boot/config-6.1.0-50-cloud-amd64", "lib/modules/v/kernel/drivers/net/veth.ko",
		"lib/modules/v/kernel/net/8021q/8021q.ko", "lib/modules/v/kernel/net/802/garp.ko", "lib/modules/v/kernel/net/other.ko",
	} {
		path := filepath.Join(unpacked, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(unpacked, "kept")
	if err := keep(unpacked, kept); err != nil {
		t.Fatal(err)
	}
	k, err := openKernel(kept)
	if err != nil {
		t.Fatal(err)
	}
	files, err := k.initramfs(filepath.Join(kept, "vmlinuz")) // any file will do for init
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		if f.content != nil {
			got = append(got, f.name+"="+string(f.content))
		}
	}
	want := []string{
		"init=boot/vmlinuz-6.1.0-50-cloud-amd64", "modules/02-garp.ko=lib/modules/v/kernel/net/802/garp.ko",
		"modules/04-8021q.ko=lib/modules/v/kernel/net/8021q/8021q.ko", "modules/07-veth.ko=lib/modules/v/kernel/drivers/net/veth.ko",
	}
	if len(got) != len(want) {
		t.Fatalf("the machine gets %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("the machine gets %q, want %q", got[i], want[i])
		}
	}
	if _, err := openKernel(unpacked); err == nil {
		t.Error("a folder without a kernel is taken for one")
	}
}
