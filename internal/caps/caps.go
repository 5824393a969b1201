// Package caps reads and gives up the capabilities (capabilities(7)) of this
// process, and names them as people write them.
package caps

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, a bit each.
type Set uint64

// The capabilities that Headgate has a use for.
const (
	Kill           Set = 1 << unix.CAP_KILL
	SetGID         Set = 1 << unix.CAP_SETGID
	SetUID         Set = 1 << unix.CAP_SETUID
	NetBindService Set = 1 << unix.CAP_NET_BIND_SERVICE
	NetAdmin       Set = 1 << unix.CAP_NET_ADMIN
	SysAdmin       Set = 1 << unix.CAP_SYS_ADMIN
	Perfmon        Set = 1 << unix.CAP_PERFMON
	BPF            Set = 1 << unix.CAP_BPF
)

var names = []struct {
	set  Set
	name string
}{
	{BPF, "CAP_BPF"},
	{NetAdmin, "CAP_NET_ADMIN"},
	{Perfmon, "CAP_PERFMON"},
	{SetUID, "CAP_SETUID"},
	{SetGID, "CAP_SETGID"},
	{Kill, "CAP_KILL"},
	{NetBindService, "CAP_NET_BIND_SERVICE"},
	{SysAdmin, "CAP_SYS_ADMIN"},
}

// NetworkGate is what it takes to load, attach and pin the network gate. The
// kernel refuses the program's arithmetic on packet pointers without
// CAP_PERFMON.
const NetworkGate = BPF | NetAdmin | Perfmon

// OtherUser is what it takes to start the HTTP gate's process as another user,
// and to end one that hangs.
const OtherUser = SetUID | SetGID | Kill

// String names the capabilities of s: "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON".
func (s Set) String() string {
	var list []string
	for _, n := range names {
		if s&n.set != 0 {
			list = append(list, n.name)
			s &^= n.set
		}
	}
	for bit := range 64 {
		if s&(1<<bit) != 0 {
			list = append(list, fmt.Sprintf("capability %d", bit))
		}
	}
	switch len(list) {
	case 0:
		return "no capability"
	case 1:
		return list[0]
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " and " + list[last]
}

// Effective returns what the calling thread may use.
func Effective() (Set, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	return Set(data[0].Effective) | Set(data[1].Effective)<<32, nil
}

// Missing returns what of need the calling thread may not use. CAP_SYS_ADMIN
// stands for CAP_BPF and CAP_PERFMON, as it did before Linux 5.8.
func Missing(need Set) (Set, error) {
	have, err := Effective()
	if have&SysAdmin != 0 {
		have |= BPF | Perfmon
	}
	return need &^ have, err
}
