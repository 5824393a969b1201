// Command demo shows both gates at work on real traffic, and checks what it
// shows. It makes two network namespaces joined by a veth pair, runs the
// daemon in one of them in front of a web server, and sends from the other: a
// flood of UDP packets, a well-behaved client, and an API key that asks too
// often. It needs root, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	// The daemon is told when the thread that started it dies, so that a
	// killed demo leaves none: keep to this thread.
	runtime.LockOSThread()
	duration := flag.Duration("for", 20*time.Second, "how long to send; at least 5s, for Retry-After to pass")
	binary := flag.String("headgate", "bin/headgate", "the binary to show")
	flag.Parse()
	if *duration < 5*time.Second || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, newPlan(*duration), *binary, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	}
	switch {
	case ctx.Err() != nil:
		os.Exit(130)
	case err != nil:
		os.Exit(1)
	}
}

var errChecks = errors.New("not everything is as promised")

// run is the whole demo. It fails where a check does, and where something
// can't be removed.
func run(ctx context.Context, p plan, binary string, out *os.File) (err error) {
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w (make build)", err)
	}
	w, err := newWorld(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	d, err := startDaemon(w, binary)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.stop())
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(out, "\nThe daemon's log:\n%s", d.logTail())
		}
	}()
	if err := w.ready(ctx, d); err != nil {
		return err
	}
	introduce(out, p, w)
	t, err := newTraffic(p, w.link(), w.door)
	if err != nil {
		return err
	}
	r, err := watch(ctx, t, newScreen(out, p))
	if err != nil {
		return err
	}
	status, err := d.ask("status")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nheadgate status:\n\n%s", status)
	if !report(out, p.checks(r)) {
		return errChecks
	}
	return nil
}

// watch runs the traffic and shows it meanwhile.
func watch(ctx context.Context, t *traffic, s *screen) (result, error) {
	showing, stop := context.WithCancel(ctx)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		s.follow(showing, t)
	}()
	r, err := t.run(ctx)
	stop()
	<-shown
	return r, err
}

func introduce(out *os.File, p plan, w *world) {
	fmt.Fprintf(out, `Headgate guards %s in %s; everything comes from %s.
The attacker may send %d packets a second and sends ten times that. The good
client sends and asks at half of its limits. The API key asks too often.

`, w.link().Gate.Interface, w.net.Gate.Name, w.link().Peer.NS.Name, p.PacketRate)
}
