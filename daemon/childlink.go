package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/l7"
)

// childLink is the daemon's side of one HTTP gate process.
type childLink struct {
	proc   *process
	down   *frames
	exited chan struct{} // closed when the process is gone
	how    error         // how it ended; set before exited is closed

	mu      sync.Mutex
	lastID  uint64
	waiting map[uint64]chan answer

	// What it has; only who holds httpGate.changing touches these.
	doors map[string]config.Listener
	keys  *config.Keyring
	keyed bool // it was given keys, or none

	restored *BucketsRestored // with the last policy
}

// startChild starts a process that has no policy yet.
func startChild(by *launcherLink) (*childLink, error) {
	down, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	proc, err := by.start(theirs)
	theirs.Close()
	if err != nil {
		down.Close()
		return nil, err
	}
	c := &childLink{
		proc:    proc,
		down:    down,
		exited:  make(chan struct{}),
		waiting: map[uint64]chan answer{},
		doors:   map[string]config.Listener{},
	}
	go func() {
		listened := c.listen()
		select {
		case <-proc.ended:
			c.how = cause(proc.how, listened)
		case <-by.gone: // nobody tells how it ended
			c.how = cause(nil, listened)
		}
		close(c.exited)
	}()
	return c, nil
}

// end ends the child at once. One whose launcher is gone sees the end of the
// link, and drains.
func (c *childLink) end() {
	c.proc.kill()
	c.down.Close()
}

// cause says how a child ended, from its exit and from what the link saw.
func cause(waited, listened error) error {
	if waited != nil {
		return fmt.Errorf("the HTTP gate's process ended: %w", waited)
	}
	if listened != nil {
		return fmt.Errorf("the HTTP gate's process ended: %w", listened)
	}
	return errEnded
}

// errEnded is how a child ends that has no fault.
var errEnded = errors.New("the HTTP gate's process ended by itself")

// listen hands answers to those who wait for them, until the child is gone. A
// child that speaks nonsense is ended.
func (c *childLink) listen() error {
	for {
		var a answer
		err := c.down.read(&a)
		if err != nil {
			c.end()
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		c.mu.Lock()
		reply := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		if reply != nil {
			reply <- a
		}
	}
}

// ask sends an order and waits for its answer until ctx ends.
func (c *childLink) ask(ctx context.Context, o order, fds []int) (answer, error) {
	reply := make(chan answer, 1)
	c.mu.Lock()
	c.lastID++
	o.ID = c.lastID
	c.waiting[o.ID] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, o.ID)
		c.mu.Unlock()
	}()
	deadline, _ := ctx.Deadline()
	if err := c.down.write(o, fds, deadline); err != nil {
		// Half a frame may be out, so nothing more can be said to this child.
		c.end()
		return answer{}, fmt.Errorf("write to the HTTP gate's process: %w", err)
	}
	select {
	case a := <-reply:
		return a, nil
	case <-c.exited:
		return answer{}, c.how
	case <-ctx.Done():
		return answer{}, fmt.Errorf("the HTTP gate's process did not answer: %w", ctx.Err())
	}
}

// errRefused marks an order that the child understood and refused: it goes on
// as before.
var errRefused = errors.New("the HTTP gate refused it")

// set gives the child its policy and its listeners.
func (c *childLink) set(ctx context.Context, p l7.Policy, socks map[string]*socket) error {
	keys := p.HTTP.Keys
	if c.keyed && c.keys.Equal(keys) {
		p.SameKeys = true
	} else if err := c.sendKeys(ctx, keys, false); err != nil {
		return err
	}
	o := order{Do: orderSet, Policy: &p}
	var fds []int
	for _, l := range p.HTTP.Listeners {
		had, ok := c.doors[l.Address]
		passed := !ok || !reflect.DeepEqual(had, l)
		if passed {
			fds = append(fds, socks[l.Address].fd)
		}
		o.Doors = append(o.Doors, orderedDoor{Listener: l, Passed: passed})
	}
	a, err := c.ask(ctx, o, fds)
	if err != nil {
		return err
	}
	if a.Error != "" {
		return fmt.Errorf("%w: %s", errRefused, a.Error)
	}
	c.keys, c.keyed = keys, true
	if len(keys.Block()) > muchKeyed && !p.SameKeys {
		freeKeys()
	}
	c.restored = a.Restored
	c.doors = make(map[string]config.Listener, len(o.Doors))
	for _, d := range o.Doors {
		c.doors[d.Address] = d.Listener
	}
	return nil
}

// back has the child take the buckets back from f with its first policy.
func (c *childLink) back(ctx context.Context, f *os.File) error {
	_, err := c.ask(ctx, order{Do: orderBack}, []int{int(f.Fd())})
	return err
}

// stop lets the child finish what is in flight and write its buckets to save, if
// that is not nil, then ends it. It returns whether the child ended by itself and
// without a fault.
func (c *childLink) stop(save *os.File) (whole bool) {
	deadline := time.Now().Add(stopTime)
	var fds []int
	if save != nil {
		fds = append(fds, int(save.Fd()))
	}
	// Whether the order arrives or not, the end of the stream says the same.
	err := c.down.write(order{Do: orderStop}, fds, deadline)
	c.down.conn.CloseWrite()
	select {
	case <-c.exited:
		return err == nil && errors.Is(c.how, errEnded)
	case <-time.After(time.Until(deadline)):
		c.end()
		<-c.exited
		return false
	}
}
