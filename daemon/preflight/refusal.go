package preflight

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// replace is XDP_FLAGS_REPLACE: only in the place of the program that is named.
const replace = 1 << 4

// Explain says in one line why the kernel refused to attach a program to f in
// native mode with err: its own text, what it means, and the cure. program is
// the file descriptor of what was refused.
//
// The call that makes a link has no room for a text (up to Linux 6.18; only a
// tracepoint shows it), so the same is asked again by netlink, whose answer has
// it. An interface that has a program by then is not touched.
func (f *Facts) Explain(program int, err error) string {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	text := ""
	if again, said := try(f.Index, program); again == errno {
		text = said
	}
	return f.explain(errno, text)
}

func (f *Facts) explain(errno unix.Errno, text string) string {
	said := errno.Error()
	if text != "" {
		said += ": the kernel says \"" + text + "\""
	}
	o := recognised(f, errno, text)
	if o == nil {
		return said + " (the kernel log may say more: dmesg)"
	}
	return fmt.Sprintf("%s: %s (cure: %s)", said, o.why, o.remedy(f))
}

// try attaches a program by netlink, where nothing is attached, and returns the
// kernel's answer. What was attached all the same comes off at once.
func try(index, program int) (unix.Errno, string) {
	errno, text := setXDP(index, program, -1, nl.XDP_FLAGS_DRV_MODE|nl.XDP_FLAGS_UPDATE_IF_NOEXIST)
	if errno == 0 {
		setXDP(index, -1, program, nl.XDP_FLAGS_DRV_MODE|replace)
	}
	return errno, text
}

// setXDP sends RTM_SETLINK with a program and returns number and text of the
// answer; 0 for success. With replace in flags it is in the place of expected.
func setXDP(index, program, expected int, flags uint32) (unix.Errno, string) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return unix.EIO, ""
	}
	defer s.Close()
	if err := s.SetExtAck(true); err != nil {
		return unix.EIO, ""
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	attr := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	attr.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(uint32(int32(program))))
	attr.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(flags))
	if flags&replace != 0 {
		attr.AddRtAttr(unix.IFLA_XDP_EXPECTED_FD, nl.Uint32Attr(uint32(expected)))
	}
	req.AddData(attr)
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return unix.EIO, ""
	}
	text := ""
	if err != nil {
		text, _ = strings.CutPrefix(err.Error(), errno.Error()+": ")
		if text == errno.Error() {
			text = ""
		}
	}
	return errno, text
}
