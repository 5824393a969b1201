package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"text/template"
	"time"

	"github.com/headgate/headgate/internal/rig"
)

// world is what the demo runs in: two namespaces, a web server to protect,
// and files of its own. All of it goes with close.
type world struct {
	net    *rig.Network
	dir    string // config, socket and state
	pins   string // in the bpffs
	config string
	door   string // the HTTP gate's address
	admin  string // metrics and health
	server *http.Server
}

func newWorld(p plan) (*world, error) {
	w := &world{}
	if err := w.build(p); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) build(p plan) (err error) {
	if w.net, err = rig.New(1); err != nil {
		return err
	}
	for _, source := range []netip.Addr{p.Attacker, p.Good, p.Caller} {
		if err := w.link().Peer.AddAddress(netip.PrefixFrom(source, source.BitLen())); err != nil {
			return err
		}
	}
	if w.pins, err = rig.MakeBPFFS(); err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "headgate-demo-"); err != nil {
		return err
	}
	upstream, err := w.serve()
	if err != nil {
		return err
	}
	w.door = netip.AddrPortFrom(w.link().Gate.IPv4, 8080).String()
	w.admin = "127.0.0.1:9317"
	return w.writeConfig(p, upstream)
}

func (w *world) link() rig.Link { return w.net.Links[0] }

// serve starts the web server, on loopback behind the gate.
func (w *world) serve() (address string, err error) {
	ln, err := rig.Listen(w.net.Gate, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start the web server: %w", err)
	}
	w.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(rw, "<!doctype html><title>Shop</title><p>%s, for %s\n",
				template.HTMLEscapeString(r.URL.Path), template.HTMLEscapeString(r.Header.Get("X-Forwarded-For")))
		}),
	}
	go w.server.Serve(ln)
	return ln.Addr().String(), nil
}

func (w *world) writeConfig(p plan, upstream string) (err error) {
	w.config, err = settings{
		plan: p, Interface: w.link().Gate.Interface,
		Door: w.door, Upstream: upstream, Admin: w.admin, Dir: w.dir, Pins: w.pins,
	}.write()
	return err
}

// ready waits until the daemon says that both gates are up, or ends it.
func (w *world) ready(ctx context.Context, d *daemon) error {
	const patience = 20 * time.Second
	ctx, stop := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer stop()
	client := rig.HTTPClient(w.net.Gate, netip.Addr{})
	defer client.CloseIdleConnections()
	for {
		last := healthy(ctx, client, "http://"+w.admin+"/readyz")
		if last == nil {
			return nil
		}
		select {
		case <-d.ended:
			return errors.New("wait for the daemon: it has ended")
		case <-ctx.Done():
			return fmt.Errorf("wait for the daemon to be ready: %w (%v)", context.Cause(ctx), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func healthy(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

// close removes the world. Pins that are still there go too, and with them
// the program that they hold on the interface.
func (w *world) close() error {
	var errs []error
	if w.server != nil {
		errs = append(errs, w.server.Close())
	}
	if w.pins != "" {
		errs = append(errs, os.RemoveAll(w.pins))
	}
	if w.net != nil {
		errs = append(errs, w.net.Close())
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}
