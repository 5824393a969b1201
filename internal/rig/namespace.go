package rig

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaces is where named network namespaces are mounted, by ip(8) too.
const namespaces = "/run/netns"

// Namespace is a named network namespace.
type Namespace struct {
	Name   string
	handle netns.NsHandle
	links  *netlink.Handle // a route socket inside
}

// newNamespace makes a namespace with its loopback up and without traffic of
// its own: no router solicitations, no link-local addresses, no address
// detection, so that what a receiver sees was sent.
func newNamespace() (*Namespace, error) {
	ns := &Namespace{Name: uniqueName()}
	err := inThread(func(netns.NsHandle) (err error) {
		ns.handle, err = netns.NewNamed(ns.Name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make namespace %s: %w", ns.Name, err)
	}
	if ns.links, err = netlink.NewHandleAt(ns.handle, unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", ns.Name, err)
	}
	if err := ns.quiet(); err != nil {
		return nil, err
	}
	lo, err := ns.links.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find lo in %s: %w", ns.Name, err)
	}
	if err := ns.links.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("set lo up in %s: %w", ns.Name, err)
	}
	return ns, nil
}

func (ns *Namespace) quiet() error {
	for name, value := range map[string]string{
		"ipv4/conf/all/rp_filter":                "0",
		"ipv4/conf/default/rp_filter":            "0",
		"ipv6/conf/default/accept_dad":           "0",
		"ipv6/conf/default/accept_ra":            "0",
		"ipv6/conf/default/router_solicitations": "0",
		"ipv6/conf/default/addr_gen_mode":        "1",
	} {
		if err := ns.SetSysctl("net/"+name, value); err != nil {
			return err
		}
	}
	return nil
}

// close removes the name. Processes inside, if any are left, keep the
// namespace itself.
func (ns *Namespace) close() error {
	if ns.links != nil {
		ns.links.Close()
	}
	if err := ns.handle.Close(); err != nil {
		return err
	}
	return netns.DeleteNamed(ns.Name)
}

// Path is the file that nsenter --net= and setns(2) take.
func (ns *Namespace) Path() string { return filepath.Join(namespaces, ns.Name) }

// Run calls fn on a thread inside the namespace and returns its error.
// Goroutines that fn starts are outside. fn may end the test: Run then ends
// its caller's goroutine too.
func Run(ns *Namespace, fn func() error) error {
	return inThread(func(netns.NsHandle) error {
		if err := netns.Set(ns.handle); err != nil {
			return fmt.Errorf("enter namespace %s: %w", ns.Name, err)
		}
		return fn()
	})
}

// inThread calls fn on a locked thread of its own and brings the thread home
// to the namespace it came from. A thread that cannot be brought home stays
// locked, so that it ends with its goroutine.
func inThread(fn func(home netns.NsHandle) error) error {
	var err error
	exited := true
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, herr := netns.Get()
		if herr != nil {
			err, exited = fmt.Errorf("open own namespace: %w", herr), false
			return
		}
		defer home.Close()
		defer func() {
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
		}()
		err = fn(home)
		exited = false
	}()
	<-done
	if exited {
		runtime.Goexit()
	}
	return err
}

// Command prepares a command that runs in the namespace. It uses nsenter,
// because ip netns exec remounts /sys and so hides the bpffs.
func Command(ns *Namespace, name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + ns.Path(), "--", name}, args...)...)
}

// Listen is net.Listen inside the namespace.
func Listen(ns *Namespace, network, address string) (net.Listener, error) {
	var ln net.Listener
	err := Run(ns, func() (err error) {
		ln, err = net.Listen(network, address)
		return err
	})
	return ln, err
}

// HTTPClient returns a client whose connections start in the namespace, from
// source; the zero Addr leaves the choice to the kernel. URLs must name
// addresses: nothing is resolved. Redirects are not followed and no proxy of
// the environment is used.
func HTTPClient(ns *Namespace, source netip.Addr) *http.Client {
	dialer := net.Dialer{}
	if source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		if _, err := netip.ParseAddrPort(address); err != nil {
			return nil, fmt.Errorf("dial %s: %w (name an address: a namespace has no resolver)", address, err)
		}
		err = Run(ns, func() (err error) {
			conn, err = dialer.DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dial},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
