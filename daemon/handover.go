package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
)

// handover is the traffic of listening sockets with the service manager, so
// that connections wait in their queues while the daemon is restarted. The
// manager hands over sockets that it opened itself (a .socket unit) and those
// that the last daemon left with it (FDSTORE of sd_notify(3)).
type handover struct {
	log     *slog.Logger
	manager notifier

	mu     sync.Mutex
	given  []givenSocket
	stored map[string]bool // by name: what the manager keeps for us
}

// givenSocket is one that the manager handed over.
type givenSocket struct {
	bound netip.AddrPort
	sock  *socket
	name  string
	ours  bool // opened by a daemon before this one
}

// storedName starts the names of sockets that a daemon left with the manager.
const storedName = "headgate-http-"

func nameInStore(address string) string {
	return storedName + strings.ReplaceAll(address, ":", "_") // names are joined by colons
}

// takeOver takes what the manager handed to this process (sd_listen_fds(3)).
func takeOver(log *slog.Logger, manager notifier) (*handover, error) {
	h := &handover{log: log, manager: manager, stored: map[string]bool{}}
	for _, f := range activation.Files(true) {
		g, err := takeSocket(f)
		if err != nil {
			h.close()
			return nil, fmt.Errorf("take the socket %s from the service manager: %w", f.Name(), err)
		}
		h.given = append(h.given, g)
		if g.ours {
			h.stored[g.name] = true
		}
	}
	return h, nil
}

// takeSocket makes a listening socket of f, which it closes.
func takeSocket(f *os.File) (givenSocket, error) {
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return givenSocket{}, err
	}
	defer ln.Close()
	tcp, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return givenSocket{}, fmt.Errorf("it listens on %v: only TCP can be an http listener's (ListenStream=ADDRESS:PORT)", ln.Addr())
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return givenSocket{}, err
	}
	g := givenSocket{bound: plain(tcp.AddrPort()), sock: &socket{fd}, name: f.Name(), ours: strings.HasPrefix(f.Name(), storedName)}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deafTime/time.Millisecond))
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) { // multipath TCP has no such option
		g.sock.Close()
		return givenSocket{}, err
	}
	return g, nil
}

func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// boundTo reports whether a listener on address has its socket there: the same
// host, or any host, on the same port.
func boundTo(bound netip.AddrPort, address string) bool {
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil || want.Port != int(bound.Port()) {
		return false
	}
	if want.IP == nil { // ":8080"
		return bound.Addr().IsUnspecified()
	}
	return plain(want.AddrPort()) == bound
}

// take returns a socket of its own for address, nil if none was handed over.
func (h *handover) take(address string) (*socket, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.find(address)
	if g == nil {
		return nil, nil
	}
	fd, err := unix.FcntlInt(uintptr(g.sock.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("take the handed over socket of %s: %w", address, err)
	}
	return &socket{fd}, nil
}

// settle leaves the sockets that are open now with the manager, except those
// that a .socket unit holds, and takes back those that are not any more.
func (h *handover) settle(socks map[string]*socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	keep := map[string]bool{}
	for address, s := range socks {
		g := h.find(address)
		if g != nil && !g.ours {
			continue
		}
		name := nameInStore(address)
		if g != nil {
			name = g.name
		}
		if !h.stored[name] {
			h.tell("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, s.fd)
			h.stored[name] = true
		}
		keep[name] = true
	}
	for name := range h.stored {
		if !keep[name] {
			h.tell("FDSTOREREMOVE=1\nFDNAME=" + name)
			delete(h.stored, name)
		}
	}
	h.given = slices.DeleteFunc(h.given, func(g givenSocket) bool {
		if !g.ours || keep[g.name] {
			return false
		}
		g.sock.Close()
		return true
	})
}

// find returns what was handed over for address, nil if nothing was.
func (h *handover) find(address string) *givenSocket {
	for i, g := range h.given {
		if boundTo(g.bound, address) {
			return &h.given[i]
		}
	}
	return nil
}

// warnUnused names sockets of a .socket unit that nobody will ever accept from.
func (h *handover) warnUnused(listeners []config.Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.given {
		if !slices.ContainsFunc(listeners, func(l config.Listener) bool { return boundTo(g.bound, l.Address) }) {
			h.log.Warn("the service manager handed over a socket that no http listener names: connections to it wait for ever", "socket", g.bound)
		}
	}
}

func (h *handover) tell(state string, files ...int) {
	if err := h.manager.tell(state, files...); err != nil {
		h.log.Warn(err.Error() + " (a restart will refuse connections for a moment)")
	}
}

func (h *handover) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.given {
		g.sock.Close()
	}
	h.given = nil
}
