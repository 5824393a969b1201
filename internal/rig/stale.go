package rig

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// removeStale removes the namespaces and bpffs folders of processes that are
// no more. It is best effort: another test may be removing the same ones.
func removeStale() {
	for _, name := range staleNames(namespaces) {
		removeNamespace(name)
	}
	for _, name := range staleNames(bpffs) {
		os.RemoveAll(filepath.Join(bpffs, name))
	}
}

// staleNames returns the names in dir that a dead process of ours made.
func staleNames(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var stale []string
	for _, e := range entries {
		if pid, ok := maker(e.Name()); ok && !alive(pid) {
			stale = append(stale, e.Name())
		}
	}
	return stale
}

// maker reads the process from a name that uniqueName made.
func maker(name string) (pid int, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return 0, false
	}
	process, serial, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, false
	}
	if _, err := strconv.ParseUint(serial, 10, 64); err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(process)
	return pid, err == nil && pid > 0
}

func alive(pid int) bool {
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// removeNamespace deletes a namespace by name. Its veth ends go too: a
// process that was left inside would otherwise keep them.
func removeNamespace(name string) {
	if handle, err := netns.GetFromName(name); err == nil {
		deleteLinks(handle)
		handle.Close()
	}
	if netns.DeleteNamed(name) != nil {
		// A maker that died between creating the file and mounting on it.
		os.Remove(filepath.Join(namespaces, name))
	}
}

func deleteLinks(ns netns.NsHandle) {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return
	}
	for _, l := range links {
		if l.Type() == "veth" {
			h.LinkDel(l)
		}
	}
}
