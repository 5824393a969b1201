package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// ChildCommand is the hidden command that the daemon starts the HTTP gate's
// process with.
const ChildCommand = "http-gate"

// childFD is where the child finds its end of the socketpair.
const childFD = 3

// drainTime is how long requests in flight may take to end when the HTTP gate
// stops.
const drainTime = 10 * time.Second

// What the daemon may order.
const (
	orderSet    = "set"    // take this policy and these listeners
	orderKeys   = "keys"   // take this part of the keys
	orderChange = "change" // take these changes of the lists
	orderCount  = "count"  // tell the counters
	orderTop    = "top"    // tell who does most
	orderMend   = "mend"   // reset a bucket, or give some of what was spent back
	orderLog    = "log"    // write the access log to the file that comes along, or to none
	orderStop   = "stop"   // finish what is in flight, write buckets to the file that comes along, and exit
	orderBack   = "back"   // with the next policy, take the buckets back from the file that comes along
)

// order goes down to the child.
type order struct {
	ID     uint64         `json:"id"`
	Do     string         `json:"do"`
	Policy *l7.Policy     `json:"policy,omitempty"`
	Lists  *l7.ListChange `json:"lists,omitempty"`
	Mend   *l7.Mend       `json:"mend,omitempty"`
	Keys   *keyPart       `json:"keys,omitempty"`
	Top    *l7.TopQuery   `json:"top,omitempty"`
	Doors  []orderedDoor  `json:"doors,omitempty"` // all that shall be open
}

// orderedDoor is one listener; Passed says that its socket rides on the frame,
// because the child lacks it or has it with other settings.
type orderedDoor struct {
	config.Listener
	Passed bool `json:"passed"`
}

// answer comes up from the child, one for each order.
type answer struct {
	ID      uint64                  `json:"id"`
	Error   string                  `json:"error,omitempty"`
	Mended  *l7.Mended              `json:"mended,omitempty"`
	Rules   map[string]l7.Counters  `json:"rules,omitempty"`
	Answers map[int]uint64          `json:"answers,omitempty"` // by status code
	Ended   map[l7.EndReason]uint64 `json:"ended,omitempty"`   // connections, without an answer
	Faults  uint64                  `json:"faults,omitempty"`  // requests that met a fault of the gate
	Fleet   *l7.FleetState          `json:"fleet,omitempty"`
	Lost    uint64                  `json:"lost,omitempty"` // lines of the access log
	Top     *l7.Top                 `json:"top,omitempty"`
	Buckets limit.Stats             `json:"buckets"`
	Held    map[string]limit.Held   `json:"held,omitempty"` // by rule

	Hidden   l7.Hidden        `json:"hidden"`
	Restored *BucketsRestored `json:"restored,omitempty"`
}

// httpChild is the HTTP gate's process: it parses what strangers send, so it
// has no privilege, no file and nobody to talk to but the daemon.
type httpChild struct {
	log    *slog.Logger
	up     *frames
	gate   *l7.Gate
	doors  map[string]*door // by address
	access *os.File         // that the access log goes to; nil: none
	keys   keyIntake
	saved  *os.File // that buckets are taken back from; nil: none
	saveTo *os.File // that they are written to after the drain; nil: none
	failed chan error

	serving sync.WaitGroup // a door each
}

type door struct {
	config.Listener
	ln net.Listener
}

// RunChild is the whole life of the HTTP gate's process. It ends when the
// daemon orders it or is gone.
func RunChild(log *slog.Logger) error {
	if err := refusePrivilege(); err != nil {
		return err
	}
	up, err := newFrames(os.NewFile(childFD, "daemon"))
	if err != nil {
		return fmt.Errorf("%w (%s is started by `headgate run`, not by hand)", err, ChildCommand)
	}
	c := &httpChild{log: log, up: up, gate: l7.New(log), doors: map[string]*door{}, failed: make(chan error, 1)}
	orders := make(chan error, 1)
	go func() { orders <- c.obey() }()
	select {
	case err = <-orders:
	case err = <-c.failed:
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	c.drain(ctx)
	if c.saveTo != nil && err == nil {
		err = c.save()
	}
	return err
}

// save leaves the buckets to the next process.
func (c *httpChild) save() error {
	defer c.saveTo.Close()
	done, err := saveBuckets(c.saveTo, c.gate)
	if err != nil {
		return fmt.Errorf("save buckets: %w (they start full)", err)
	}
	if done.Left > 0 {
		c.log.Warn("not all buckets are saved: the others start full", "saved", done.Keys, "left", done.Left)
	}
	return nil
}

// drain stops to listen, which comes first because a new daemon may be waiting
// for the ports, and lets requests in flight end until ctx does. The servers
// are waited for one by one: the gate's Shutdown alone would not see a
// connection that was accepted a moment ago.
func (c *httpChild) drain(ctx context.Context) {
	for _, d := range c.doors {
		d.ln.Close()
	}
	ended := make(chan struct{})
	go func() {
		c.serving.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	c.gate.Shutdown(ctx)
}

// refusePrivilege makes sure that nothing was left to this process. A daemon
// without privileges of its own has none to take away.
func refusePrivilege() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	for _, c := range caps {
		if c.Effective|c.Permitted|c.Inheritable != 0 {
			return errors.New("the HTTP gate was started with capabilities: start it by `headgate run`")
		}
	}
	return nil
}

// obey does what the daemon orders until it orders a stop or is gone.
func (c *httpChild) obey() error {
	for {
		var o order
		files, err := c.up.readWithFiles(&o)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from the daemon: %w", err)
		}
		a := answer{ID: o.ID}
		switch o.Do {
		case orderSet:
			if err := c.set(o, files, &a); err != nil {
				a.Error = err.Error()
			}
		case orderKeys:
			if err := c.takeKeys(o.Keys); err != nil {
				a.Error = err.Error()
			}
		case orderChange:
			if err := c.gate.ChangeLists(*o.Lists); err != nil {
				a.Error = err.Error()
			}
		case orderCount:
			a.Rules, a.Answers, a.Ended, a.Faults = c.gate.Counters(), c.gate.Answers(), c.gate.EndedConnections(), c.gate.Panics()
			a.Buckets, a.Held, a.Lost = c.gate.Buckets(), c.gate.Held(), c.gate.LostLines()
			a.Hidden = c.gate.Hidden()
			a.Fleet = c.gate.Fleet()
		case orderTop:
			top := c.gate.Top(*o.Top)
			a.Top = &top
		case orderMend:
			if done, err := c.gate.Mend(*o.Mend); err != nil {
				a.Error = err.Error()
			} else {
				a.Mended = &done
			}
		case orderLog:
			c.logTo(files)
		case orderBack:
			if len(files) == 1 {
				c.saved = files[0]
			}
		case orderStop:
			if len(files) == 1 {
				c.saveTo = files[0]
			}
			return nil
		default:
			a.Error = fmt.Sprintf("unknown order %q", o.Do)
		}
		if err := c.up.write(a, nil, time.Now().Add(drainTime)); err != nil {
			return fmt.Errorf("answer the daemon: %w", err)
		}
	}
}

// logTo writes the access log to the file that came, or to none.
func (c *httpChild) logTo(files []*os.File) {
	old := c.access
	if c.access = nil; len(files) == 1 {
		c.access = files[0]
		c.gate.LogTo(c.access)
	} else {
		c.gate.LogTo(nil)
	}
	if old != nil {
		old.Close()
	}
}

// set takes policy and listeners, or neither.
func (c *httpChild) set(o order, files []*os.File, a *answer) error {
	defer func() {
		for _, f := range files {
			f.Close() // the listeners hold duplicates
		}
	}()
	fresh, err := c.adopt(o.Doors, files)
	if err != nil {
		return err
	}
	if !o.Policy.SameKeys {
		if o.Policy.HTTP.Keys = c.keys.take(); len(o.Policy.HTTP.Keys.Block()) > muchKeyed {
			defer freeKeys()
		}
	}
	if err := c.gate.SetPolicy(*o.Policy); err != nil {
		for _, d := range fresh {
			d.ln.Close()
		}
		return err
	}
	if c.saved != nil {
		a.Restored = restoreBuckets(c.saved, c.gate, time.Now(), bootClock())
		c.saved.Close()
		c.saved = nil
	}
	keep := map[string]bool{}
	for _, d := range o.Doors {
		keep[d.Address] = !d.Passed
	}
	for address, d := range c.doors {
		if !keep[address] {
			d.ln.Close()
			delete(c.doors, address)
		}
	}
	for _, d := range fresh {
		c.doors[d.Address] = d
		c.serving.Go(func() { c.serve(d) })
	}
	return nil
}

// adopt makes listeners of the passed sockets.
func (c *httpChild) adopt(doors []orderedDoor, files []*os.File) ([]*door, error) {
	var fresh []*door
	fail := func(err error) ([]*door, error) {
		for _, d := range fresh {
			d.ln.Close()
		}
		return nil, err
	}
	for _, d := range doors {
		if !d.Passed {
			if c.doors[d.Address] == nil {
				return fail(fmt.Errorf("no socket for %s", d.Address))
			}
			continue
		}
		if len(files) == 0 {
			return fail(fmt.Errorf("no socket came for %s", d.Address))
		}
		ln, err := net.FileListener(files[0])
		files = files[1:]
		if err != nil {
			return fail(fmt.Errorf("listen on the passed socket of %s: %w", d.Address, err))
		}
		fresh = append(fresh, &door{Listener: d.Listener, ln: ln})
	}
	return fresh, nil
}

// serve answers requests of one listener until it is closed. A listener that
// fails ends the process: the daemon starts it anew, with fresh sockets.
func (c *httpChild) serve(d *door) {
	err := c.gate.Serve(d.ln, d.Listener)
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return
	}
	select {
	case c.failed <- fmt.Errorf("serve %s: %w", d.Address, err):
	default:
	}
}
