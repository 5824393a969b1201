package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon/preflight"
	"github.com/headgate/headgate/maps"
)

// manyMounts is a number of mounts that no host has on purpose.
const manyMounts = 5000

// lookAtPins tells of a bpffs that is missing, that ends with its container, or
// that is mounted again and again.
func lookAtPins(p *Patient) []Finding {
	if p.Config == nil {
		return unseen("where the pins are: there is no good config", "")
	}
	dir := p.Config.State.Pins
	pins, err := preflight.LookAtPins(p.Proc, dir)
	if err != nil {
		return unseen(err.Error(), "")
	}
	if pins.Mount.Type != "bpf" {
		if len(p.Config.Network.Interfaces) == 0 {
			return ok("none needed: network.interfaces is empty")
		}
		return failure(fmt.Sprintf("%s is not in a bpffs but in a %s on %s", dir, pins.Mount.Type, pins.Mount.Point),
			"mount -t bpf bpf /sys/fs/bpf (in a container: mount the host's, with mountPropagation: HostToContainer), or set state.pins to a folder in one")
	}
	return judgePins(dir, pins)
}

func judgePins(dir string, pins preflight.Pins) []Finding {
	const cure = "mount the host's /sys/fs/bpf into the container (hostPath, mountPropagation: HostToContainer) and mount none in it"
	var out []Finding
	switch {
	case pins.Survives:
		out = ok(fmt.Sprintf("%s is in the host's bpffs on %s", dir, pins.Mount.Point))
	case pins.Sure:
		out = failure(fmt.Sprintf("the bpffs on %s is the container's own: pins, and with them the filter, end with it", pins.Mount.Point), cure)
	default:
		out = warning(fmt.Sprintf("the bpffs on %s seems to be the container's own: then pins, and with them the filter, end with it", pins.Mount.Point), cure)
	}
	if pins.Times > 1 {
		out = append(out, warning(fmt.Sprintf("%d file systems are mounted on %s, one over the other: each restart adds one, and what was pinned below is out of reach", pins.Times, pins.Mount.Point),
			"let no start mount a bpffs where there is one; with mountPropagation: Bidirectional use HostToContainer instead; umount "+pins.Mount.Point+" until one is left")...)
	}
	if pins.Mounts > manyMounts {
		out = append(out, warning(fmt.Sprintf("there are %d mounts: something mounts with each restart", pins.Mounts), "look for what is there often in /proc/self/mountinfo")...)
	}
	return out
}

func lookAtMemory(p *Patient) []Finding {
	switch {
	case p.Config == nil:
		return unseen("how much memory is needed: there is no good config", "")
	case len(p.Config.Network.Interfaces) == 0:
		return ok("none needed: network.interfaces is empty")
	}
	need, err := maps.Memory(p.Config.Network.Slots)
	if err != nil {
		return unseen(err.Error(), "")
	}
	if p.running() && p.Status.Network.Table != nil {
		return ok(fmt.Sprintf("network.slots %d: the maps hold their memory", p.Status.Network.Table.Slots))
	}
	room, of, err := p.room()
	if err != nil {
		return unseen(err.Error(), "")
	}
	return memory(p.Config.Network.Slots, need, room, of)
}

func memory(slots uint32, need, room uint64, of string) []Finding {
	const cure = "lower network.slots (16 bytes each), or give the host or the container more memory"
	text := fmt.Sprintf("network.slots %d: the maps take %d MiB of %d MiB that %s has left", slots, need>>20, room>>20, of)
	switch {
	case need > room:
		return failure(text, cure)
	case need > room/2:
		return warning(text, cure)
	}
	return ok(text)
}

// room is how many bytes may still be taken: by the host, or by the control
// group of this process, to which BPF maps are charged since Linux 5.11.
func (p *Patient) room() (uint64, string, error) {
	data, err := os.ReadFile(filepath.Join(p.Proc, "meminfo"))
	if err != nil {
		return 0, "", err
	}
	kib, found := field(data, "MemAvailable:")
	if !found {
		return 0, "", errors.New("meminfo does not tell what is available")
	}
	room, of := kib<<10, "the host"
	group, err := os.ReadFile(filepath.Join(p.Proc, "self/cgroup"))
	if err != nil {
		return room, of, nil
	}
	_, path, _ := strings.Cut(strings.TrimSpace(string(group)), "0::")
	dir := filepath.Join("/sys/fs/cgroup", path)
	most, errMost := number(filepath.Join(dir, "memory.max"))
	used, errUsed := number(filepath.Join(dir, "memory.current"))
	if errMost == nil && errUsed == nil && most-min(most, used) < room {
		room, of = most-min(most, used), "the control group "+path
	}
	return room, of, nil
}

func field(data []byte, name string) (uint64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if w := strings.Fields(lines.Text()); len(w) > 1 && w[0] == name {
			n, err := strconv.ParseUint(w[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func number(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// leastFree is what the state file and its next version need in any case.
const leastFree = 64 << 20

func lookAtState(p *Patient) []Finding {
	if p.Config == nil {
		return unseen("where the state is: there is no good config", "")
	}
	return state(p.Config)
}

func state(cfg *config.Config) []Finding {
	dir := cfg.State.Dir
	at, err := existing(dir)
	if err != nil {
		return failure("state.dir "+dir+": "+err.Error(), "set state.dir to a folder that the daemon may write")
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return unseen("state.dir "+dir+": "+err.Error(), "run it as root")
	}
	free := fs.Bavail * uint64(fs.Bsize)
	switch {
	case fs.Flags&unix.ST_RDONLY != 0:
		return failure("state.dir "+dir+" is on a file system that is mounted read-only: nothing given on the command line would last", "set state.dir to a folder that can be written")
	case fs.Files > 0 && fs.Ffree == 0:
		return failure("the file system of state.dir "+dir+" has no inode left: the next block or rule cannot be kept", "make room on it")
	case free < leastFree:
		return failure(fmt.Sprintf("the file system of state.dir %s has %d MiB left: the next block or rule may not be kept", dir, free>>20), "make room on it")
	}
	if err := unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		if os.Geteuid() != 0 {
			return unseen("whether the daemon may write state.dir "+dir+": this user may not", "run doctor as the daemon's user")
		}
		return failure("state.dir "+dir+" cannot be written: "+err.Error(), "set state.dir to a folder that can be written")
	}
	return ok(fmt.Sprintf("state.dir %s can be written, %d MiB free", dir, free>>20))
}

// existing is dir, or the nearest folder above it that there is.
func existing(dir string) (string, error) {
	for {
		st, err := os.Stat(dir)
		switch {
		case err == nil && st.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is no folder", dir)
		case !errors.Is(err, os.ErrNotExist):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// slowClocks need a call into the kernel, or to a device, for each reading.
var slowClocks = []string{"hpet", "acpi_pm", "jiffies", "refined-jiffies"}

// lookAtClock compares the clocks over a moment: a wall clock that is being
// moved makes ends of blocks come early or late, one that was never set makes
// dates of ends mean nothing.
func lookAtClock(p *Patient) []Finding {
	const moment = 50 * time.Millisecond
	wall, mono := readClocks()
	time.Sleep(moment)
	wall2, mono2 := readClocks()
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	var tick unix.Timespec
	unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick)
	return clock(time.Unix(0, wall2), time.Duration((wall2-wall)-(mono2-mono)), strings.TrimSpace(string(source)), time.Duration(tick.Nano()))
}

func readClocks() (wall, mono int64) {
	var w, m unix.Timespec
	unix.ClockGettime(unix.CLOCK_REALTIME, &w)
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &m)
	return w.Nano(), m.Nano()
}

// clock judges what the wall clock says, by how much it ran apart from the
// monotonic one in a moment, the clock source and the length of a jiffy.
func clock(wall time.Time, apart time.Duration, source string, tick time.Duration) []Finding {
	var out []Finding
	// nobody had this program before
	if wall.Year() < 2025 {
		out = append(out, failure("the wall clock says "+wall.UTC().Format(time.DateTime)+": dates of ends mean nothing", "set the clock (chronyd, systemd-timesyncd)")...)
	}
	if apart.Abs() > 10*time.Millisecond {
		out = append(out, failure(fmt.Sprintf("the wall clock ran %v apart from the monotonic one in a moment: something steps it", apart), "look for two time services, or a hypervisor that sets the clock")...)
	}
	for _, s := range slowClocks {
		if source == s {
			out = append(out, warning("the clock source is "+s+": reading the time costs about a microsecond a packet", "see dmesg for why tsc is not used (boot with tsc=reliable where it is)")...)
		}
	}
	if len(out) == 0 {
		return ok(fmt.Sprintf("wall clock and monotonic clock run alike; source %s, a jiffy is %v", source, tick))
	}
	return out
}
