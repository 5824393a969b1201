package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// moduleOrder are the modules that a machine is given, those that others need
// first. A kernel that has one built in has no file of it.
var moduleOrder = []string{"llc", "stp", "garp", "mrp", "8021q", "tls", "bonding", "veth"}

// kernel is what is kept of a kernel's packages.
type kernel struct {
	image   string            // the file that is booted
	modules map[string]string // name → file
}

// fetch returns the kernel of a package, from the cache where it is there.
func fetch(a *archive, cache, image string, names []string) (*kernel, error) {
	version, err := a.version(image)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, image+"_"+strings.ReplaceAll(version, ":", "_"))
	if k, err := openKernel(dir); err == nil {
		return k, nil
	}
	unpacked, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(unpacked)
	for _, part := range parts(image, names) {
		fmt.Printf("kernels: downloading %s %s\n", part, version)
		if err := a.download(part, unpacked); err != nil {
			return nil, err
		}
	}
	kept := filepath.Join(unpacked, "kept")
	if err := keep(unpacked, kept); err != nil {
		return nil, fmt.Errorf("look into the packages of %s: %w", image, err)
	}
	if err := os.Rename(kept, dir); err != nil {
		return nil, err
	}
	return openKernel(dir)
}

// keep moves the kernel and the modules from unpacked packages into dir.
func keep(unpacked, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return filepath.WalkDir(unpacked, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir:
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		case strings.HasPrefix(d.Name(), "vmlinuz"):
			return os.Rename(path, filepath.Join(dir, "vmlinuz"))
		}
		for _, name := range moduleOrder {
			switch d.Name() {
			case name + ".ko":
				return os.Rename(path, filepath.Join(dir, name+".ko"))
			case name + ".ko.xz":
				return unxz(path, filepath.Join(dir, name+".ko"))
			}
		}
		return nil
	})
}

func unxz(from, to string) error {
	out, err := exec.Command("xz", "-dc", from).Output()
	if err != nil {
		return fmt.Errorf("unpack %s: %w (is xz installed?)", filepath.Base(from), err)
	}
	return os.WriteFile(to, out, 0o644)
}

// openKernel finds what keep has kept.
func openKernel(dir string) (*kernel, error) {
	k := &kernel{image: filepath.Join(dir, "vmlinuz"), modules: map[string]string{}}
	if _, err := os.Stat(k.image); err != nil {
		return nil, fmt.Errorf("no kernel in %s: %w", dir, err)
	}
	for _, name := range moduleOrder {
		file := filepath.Join(dir, name+".ko")
		if _, err := os.Stat(file); err == nil {
			k.modules[name] = file
		}
	}
	return k, nil
}

// initramfs is the first file system of the machine: init and the modules.
func (k *kernel) initramfs(init string) ([]file, error) {
	files := []file{
		{name: "dev/", mode: 0o755}, {name: "proc/", mode: 0o755}, {name: "sys/", mode: 0o755},
		{name: "run/", mode: 0o755}, {name: "tmp/", mode: 0o755}, {name: "modules/", mode: 0o755},
	}
	program, err := os.ReadFile(init)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: "init", mode: 0o755, content: program})
	for i, name := range moduleOrder {
		if path, ok := k.modules[name]; ok {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files = append(files, file{name: fmt.Sprintf("modules/%02d-%s.ko", i, name), mode: 0o644, content: content})
		}
	}
	return files, nil
}
