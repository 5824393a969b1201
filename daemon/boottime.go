package daemon

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is a moment that no step of the wall clock moves: how long ago the
// host was started, with its sleep, and which start that was.
type bootTime struct {
	id    string
	since time.Duration
}

// bootClock reads CLOCK_BOOTTIME. Where the kernel does not tell which start it
// was, the id is empty and a moment is comparable within one process only.
func bootClock() bootTime {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return bootTime{}
	}
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return bootTime{id: strings.TrimSpace(string(id)), since: time.Duration(ts.Nano())}
}
