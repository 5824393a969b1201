package daemon

import (
	"net/http"
	"net/netip"
	"os/user"
	"strconv"
	"strings"
	"time"
)

// Headers by which the command line tells from where it is used. They are
// believed, because who can send them may do everything anyway.
const (
	SessionHeader = "Headgate-Session" // SSH_CONNECTION, as sshd(8) sets it
	SudoHeader    = "Headgate-Sudo"    // SUDO_USER, as sudo(8) sets it
)

// who is the origin of a change that r asks for.
func who(r *http.Request, now time.Time) Origin {
	o := Origin{From: FromCommand, At: now.Round(0).UTC().Truncate(time.Second)}
	o.Peer, o.Over = parseSession(r.Header.Get(SessionHeader))
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	if !ok {
		return o
	}
	o.UID = &uid
	o.By = strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(o.By); err == nil {
		o.By = u.Username
	}
	const longest = 64
	if as := r.Header.Get(SudoHeader); as != "" && as != o.By && len(as) <= longest && checkText("user", as) == nil {
		o.By = as + " as " + o.By
	}
	return o
}

// at is o, of an asker who says himself where he sits.
func (o Origin) at(peer netip.Addr) Origin {
	if peer.IsValid() {
		o.Peer = peer.Unmap().WithZone("")
	}
	return o
}

// parseSession reads SSH_CONNECTION: the addresses and ports of the client and
// of this host's end, as in "192.0.2.50 50000 192.0.2.1 22".
func parseSession(s string) (peer netip.Addr, over netip.AddrPort) {
	w := strings.Fields(s)
	if len(w) != 4 {
		return peer, over
	}
	peer, err := netip.ParseAddr(w[0])
	if err != nil {
		return netip.Addr{}, over
	}
	peer = peer.Unmap().WithZone("")
	host, err := netip.ParseAddr(w[2])
	port, portErr := strconv.ParseUint(w[3], 10, 16)
	if err == nil && portErr == nil {
		over = netip.AddrPortFrom(host.Unmap().WithZone(""), uint16(port))
	}
	return peer, over
}
