package daemon

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
)

// A port that is taken is told from one that this daemon has itself, on another
// host.
func TestPortInUse(t *testing.T) {
	address := freeAddress(t)
	own, err := listenOn(address)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one try
	for want, c := range map[string]struct {
		address string
		have    map[string]*socket
	}{
		"this daemon listens on " + address: {":" + port, map[string]*socket{address: own}},
		"see who has it: ss -ltnp":          {address, nil},
	} {
		_, err := openSockets(ctx, []config.Listener{{Address: c.address}}, c.have, &handover{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: %v, want %q", c.address, err, want)
		}
	}
}

// What the child accepts from the daemon's socket has a limit on how long a
// client may take no notice of what it is sent.
func TestDeafClientsAreCut(t *testing.T) {
	s, err := listenOn("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, err := unix.Dup(s.fd) // the file takes it over
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		if got := time.Duration(ms) * time.Millisecond; err != nil || got != deafTime {
			t.Errorf("the accepted connection has %v, %v; want %v", got, err, deafTime)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
