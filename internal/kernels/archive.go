package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// archive is Debian's, read with apt's tools but lists, sources and cache of
// its own: this machine's apt is asked where the archive is, and left as it is.
type archive struct {
	dir string
}

// suites are those that hold the kernels that are wanted; the second ones
// belong to the security archive.
var (
	suites         = []string{"bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"}
	securitySuites = []string{"bullseye-security", "bookworm-security", "trixie-security"}
)

const (
	keyring  = "/usr/share/keyrings/debian-archive-keyring.gpg"
	listsAge = 24 * time.Hour // how old lists may be
)

// openArchive brings the lists up to date. Without a network it goes on with
// the old ones, if there are any.
func openArchive(dir string, mirror string, now time.Time) (*archive, error) {
	a := &archive{dir: dir}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	stamp := filepath.Join(dir, "updated")
	if s, err := os.Stat(stamp); err == nil && now.Sub(s.ModTime()) < listsAge {
		return a, nil
	}
	if mirror == "" {
		var err error
		if mirror, err = machineMirror(); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(a.sources(), []byte(sourcesList(mirror)), 0o644); err != nil {
		return nil, err
	}
	if _, err := a.apt("apt-get", "update"); err != nil {
		if _, old := os.Stat(stamp); old != nil {
			return nil, fmt.Errorf("read the lists of %s: %w", mirror, err)
		}
		fmt.Printf("kernels: %v: going on with old lists\n", err)
		return a, nil
	}
	return a, os.WriteFile(stamp, nil, 0o644)
}

// sourcesList is in apt's one-line format. A mirror's security archive lies
// beside it.
func sourcesList(mirror string) string {
	var b strings.Builder
	mirror = strings.TrimRight(mirror, "/")
	for _, s := range suites {
		fmt.Fprintf(&b, "deb [signed-by=%s] %s %s main\n", keyring, mirror, s)
	}
	for _, s := range securitySuites {
		fmt.Fprintf(&b, "deb [signed-by=%s] %s-security %s main\n", keyring, mirror, s)
	}
	return b.String()
}

// machineMirror asks apt for the archive that this machine uses.
func machineMirror() (string, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages").Output()
	if err == nil {
		for line := range strings.Lines(string(out)) {
			if uri, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian "); ok {
				return uri, nil
			}
		}
	}
	return "", errors.New("apt on this machine knows no archive of Debian: name one with MIRROR=URL")
}

func (a *archive) sources() string { return filepath.Join(a.dir, "sources.list") }

// apt runs one of apt's tools and returns what it prints.
func (a *archive) apt(tool string, args ...string) (string, error) {
	options := []string{
		"Dir::Etc::sourcelist=" + a.sources(),
		"Dir::Etc::sourceparts=-",
		"Dir::State::lists=" + filepath.Join(a.dir, "lists"),
		"Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"Acquire::Languages=none",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"APT::Sandbox::User=root", // the cache need not be readable for others
		"APT::Architecture=amd64",
	}
	var all []string
	for _, o := range options {
		all = append(all, "-o", o)
	}
	cmd := exec.Command(tool, append(all, args...)...)
	cmd.Dir = a.dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

// kernels returns the names of all packages of kernels.
func (a *archive) kernels() ([]string, error) {
	out, err := a.apt("apt-cache", "pkgnames", "linux-")
	return strings.Fields(out), err
}

// version is that of a package which download would fetch.
func (a *archive) version(name string) (string, error) {
	out, err := a.apt("apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if v, ok := strings.CutPrefix(line, "Version: "); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("apt does not tell the version of %s", name)
}

// download fetches a package and unpacks it into dir.
func (a *archive) download(name, dir string) error {
	if _, err := a.apt("apt-get", "download", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(a.dir, name+"_*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("download %s: %d files came", name, len(files))
	}
	defer os.Remove(files[0])
	if out, err := exec.Command("dpkg-deb", "-x", files[0], dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w: %s", files[0], err, out)
	}
	return nil
}
