package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mount is a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	Device string // major:minor: one for each file system
	Point  string
	Type   string
	Slave  bool // gets what is mounted there on the host
	Shared bool // gives on what is mounted here
}

// Pins is where a folder of pins lies, and how long what is pinned there lives.
type Pins struct {
	Mount  Mount
	Times  int // how often something is mounted on that very place
	Mounts int // mounts in this mount namespace, all of them
	// Survives tells whether pins outlive this container: always on the host.
	// Sure is false where that is guessed from how the mount was made.
	Survives, Sure bool
}

// initialPIDs is the inode of the host's pid namespace (PROC_PID_INIT_INO).
const initialPIDs = "pid:[4026531836]"

// LookAtPins finds the mount that dir lies in, which need not exist yet. proc is
// where procfs is. An error says what could not be read.
func LookAtPins(proc, dir string) (Pins, error) {
	data, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return Pins{}, fmt.Errorf("read the mounts: %w", err)
	}
	mounts := parseMounts(data)
	p := Pins{Mounts: len(mounts)}
	for _, m := range mounts {
		if !within(m.Point, dir) || len(m.Point) < len(p.Mount.Point) {
			continue
		}
		if m.Point == p.Mount.Point {
			p.Times++
		} else {
			p.Times = 1
		}
		p.Mount = m // the last one covers those before it
	}
	if p.Mount.Point == "" {
		return p, errors.New("no mount holds " + dir)
	}
	p.judge(proc)
	return p, nil
}

// judge tells whether the mount is the host's. Where the host's own mounts can
// be seen, its device is among them or not. Else we are in a container with
// processes of its own, and only the mount's propagation tells that it came from
// outside: HostToContainer makes it a slave, Bidirectional shares it.
func (p *Pins) judge(proc string) {
	pids, _ := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	own, _ := os.Readlink(filepath.Join(proc, "self/ns/mnt"))
	init, errInit := os.Readlink(filepath.Join(proc, "1/ns/mnt"))
	data, errMounts := os.ReadFile(filepath.Join(proc, "1/mountinfo"))
	switch {
	case pids == initialPIDs && errInit == nil && own == init:
		p.Survives, p.Sure = true, true
	case pids == initialPIDs && errMounts == nil:
		p.Sure = true
		for _, m := range parseMounts(data) {
			p.Survives = p.Survives || m.Device == p.Mount.Device
		}
	default:
		p.Survives = p.Mount.Slave || p.Mount.Shared
	}
}

func within(point, dir string) bool {
	return point == "/" || dir == point || strings.HasPrefix(dir, point+"/")
}

// parseMounts reads mountinfo; lines that it does not understand are left out.
func parseMounts(data []byte) []Mount {
	var out []Mount
	for line := range bytes.Lines(data) {
		before, after, ok := strings.Cut(strings.TrimSpace(string(line)), " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(head) < 6 || len(tail) < 1 {
			continue
		}
		m := Mount{Device: head[2], Point: unescape(head[4]), Type: tail[0]}
		for _, tag := range head[6:] {
			m.Slave = m.Slave || strings.HasPrefix(tag, "master:")
			m.Shared = m.Shared || strings.HasPrefix(tag, "shared:")
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
