package attachments

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// occupant is an XDP program on an interface that no pin of ours leads to, as
// far as our rights let it be known.
type occupant struct {
	on      nic
	id      uint32
	name    string  // empty: not known; to look needs CAP_SYS_ADMIN
	tag     string  // of its instructions
	link    link.ID // 0: not known, or there is none
	netlink bool    // it is known to be attached without a link
	pid     int     // of a process that holds the link; 0: none in sight
	command string  // of that process
	pin     string  // of the link; empty: none in sight
}

// programName is what the kernel calls the gate's program.
const programName = "headgate"

// ours reports whether it is a program of some headgate.
func (o occupant) ours() bool {
	return o.name == programName || o.name == "" && strings.HasPrefix(filepath.Base(o.command), programName)
}

// dyingPatience is how long a start waits for what a killed process still holds.
const dyingPatience = 2 * time.Second

// makeRoom returns nil if nothing is attached that is in our way. What a
// dying headgate holds goes by itself, within patience; what an older one attached
// without a link is taken off. All else is refused, in words that let the user
// choose.
func (k *Keeper) makeRoom(at nic, patience time.Duration) error {
	const step = 50 * time.Millisecond
	for end := time.Now().Add(patience); ; time.Sleep(step) {
		if !at.attached {
			return nil
		}
		o := lookAtOccupant(at)
		switch {
		case o.ours() && o.netlink:
			k.log.Warn("taking off a program of headgate that was attached without a link: the interface is unfiltered for a moment", "interface", at.name, "program", o.id)
			if err := takeOffUnlinked(o); err != nil {
				return fmt.Errorf("attach %s: take off %s: %w", at.name, o, err)
			}
			return nil
		case !o.ours() || o.pid != 0 || o.pin != "" || time.Now().After(end):
			return o.refusal()
		}
		all, err := listNICs()
		if err != nil {
			return err
		}
		again, ok := Surroundings{nics: all}.byIndex(at.index)
		if !ok {
			return fmt.Errorf("attach %s: it has gone", at.name)
		}
		at = again
	}
}

// lookAtOccupant finds out what it can about the program on n.
func lookAtOccupant(n nic) occupant {
	o := occupant{on: n, id: n.programID}
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(o.id)); err == nil {
		if info, err := p.Info(); err == nil {
			o.name, o.tag = info.Name, info.Tag
		}
		p.Close()
	}
	o.findLink()
	o.findProcess()
	if o.ours() || o.link != 0 {
		o.findPin()
	}
	return o
}

// findLink looks through all links of the kernel, which needs CAP_SYS_ADMIN.
func (o *occupant) findLink() {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		if o.isLink(it.Link) {
			o.link = it.ID
			return
		}
	}
	o.netlink = it.Err() == nil
}

func (o *occupant) isLink(l link.Link) bool {
	info, err := l.Info()
	if err != nil || info.Type != link.XDPType || info.XDP() == nil {
		return false
	}
	return uint32(info.Program) == o.id && info.XDP().Ifindex == uint32(o.on.index)
}

// findProcess looks for a living process that holds the link, in what /proc
// tells of open files.
func (o *occupant) findProcess() {
	infos, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	for _, path := range infos {
		text, err := os.ReadFile(path)
		if err != nil || !o.isLinkInfo(text) {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if pid == os.Getpid() || len(command) == 0 { // a process that ends has none
			continue
		}
		o.pid = pid
		o.command = strings.TrimSpace(string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		return
	}
}

// isLinkInfo reports whether text, of /proc/PID/fdinfo/FD, is of the link:
//
//	link_type: xdp, link_id: 7, prog_id: 12, ifindex: 3
func (o *occupant) isLinkInfo(text []byte) bool {
	if !bytes.Contains(text, []byte("link_type:\txdp")) {
		return false
	}
	var program, index, id uint64
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":\t")
		number, _ := strconv.ParseUint(value, 10, 32)
		switch key {
		case "link_id":
			id = number
		case "prog_id":
			program = number
		case "ifindex":
			index = number
		}
	}
	if uint32(program) != o.id || index != uint64(o.on.index) {
		return false
	}
	o.link, o.netlink = link.ID(id), false
	return true
}

// findPin looks through the bpffs that are mounted here for the link's pin.
func (o *occupant) findPin() {
	const most = 4096 // files, so that a foreign tree does not hold us up
	seen := 0
	for _, root := range bpffsMounts() {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			seen++
			if err != nil || o.pin != "" || seen > most {
				return fs.SkipAll
			}
			if d.IsDir() {
				return nil
			}
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				return nil
			}
			defer l.Close()
			if o.isLink(l) {
				o.pin, o.netlink = path, false
			}
			return nil
		})
	}
}

// bpffsMounts returns where a bpffs is mounted.
func bpffsMounts() []string {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		// bpf /sys/fs/bpf bpf rw,relatime 0 0
		if w := strings.Fields(line); len(w) > 2 && w[2] == "bpf" {
			all = append(all, w[1])
		}
	}
	return all
}

// takeOffUnlinked removes a program that is attached without a link, if it is still the
// one that was looked at: the kernel compares.
func takeOffUnlinked(o occupant) error {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(o.id))
	if err != nil {
		return err
	}
	defer p.Close()
	const (
		attrExpected = 8      // IFLA_XDP_EXPECTED_FD, Linux 5.7
		flagReplace  = 1 << 4 // XDP_FLAGS_REPLACE
		none         = ^uint32(0)
	)
	mode := map[string]uint32{"native": nl.XDP_FLAGS_DRV_MODE, "generic": nl.XDP_FLAGS_SKB_MODE}[o.on.mode]
	if mode == 0 {
		return errors.New("it is offloaded to the hardware")
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(o.on.index)
	req.AddData(msg)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(none))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(mode|flagReplace))
	xdp.AddRtAttr(attrExpected, nl.Uint32Attr(uint32(p.FD())))
	req.AddData(xdp)
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
