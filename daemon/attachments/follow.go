package attachments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/maps"
)

const (
	// gatherFor gathers the burst of events that one change of an interface
	// makes.
	gatherFor = 100 * time.Millisecond
	// checkEvery is how often is looked at what raises no event: a link detached
	// by force, another program in it, something mounted over the bpffs. It is a
	// few system calls an interface.
	checkEvery = 2 * time.Second
	// retryEvery is how often an interface that refused the program is tried
	// again: a link of others that goes raises no event either.
	retryEvery = 10 * time.Second
)

// Follow keeps what is attached true to the config as interfaces and
// default routes come and go, until ctx ends.
func (k *Keeper) Follow(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := k.followEvents(ctx); err != nil {
			k.log.Error("follow interfaces: trying again", "err", err)
			pause(ctx, time.Second)
		}
	}
	return nil
}

func (k *Keeper) followEvents(ctx context.Context) error {
	links, routes := make(chan netlink.LinkUpdate, 64), make(chan netlink.RouteUpdate, 64)
	done := make(chan struct{})
	defer close(done)
	ignore := func(error) {} // the channel's end says it
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return fmt.Errorf("subscribe to interfaces: %w", err)
	}
	defer drain(links)
	if err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return fmt.Errorf("subscribe to routes: %w", err)
	}
	defer drain(routes)
	removals := k.watchPins()
	if removals != nil {
		defer removals.Close()
	}
	check, retry := time.NewTicker(checkEvery), time.NewTicker(retryEvery)
	defer check.Stop()
	defer retry.Stop()
	due := time.After(0) // what came before the subscription
	var pinsDue <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-links:
			if !ok { // more came than the socket holds: begin anew
				return errors.New("the kernel's messages on interfaces ended")
			}
			due = shortly(due)
		case r, ok := <-routes:
			if !ok {
				return errors.New("the kernel's messages on routes ended")
			}
			if isMainDefault(r.Route) {
				due = shortly(due)
			}
		case <-due:
			due = nil
			k.reconcile(nil)
			k.addPins(removals)
		case <-removed(removals):
			pinsDue = shortly(pinsDue)
		case <-pinsDue:
			pinsDue = nil
			k.reconcile(func() bool { return !k.sound() })
			k.addPins(removals)
		case <-check.C:
			k.reconcile(func() bool { return !k.sound() })
			k.addPins(removals) // what was made anew
		case <-retry.C:
			k.reconcile(k.refused)
		}
	}
}

// shortly is due, or a moment from now if nothing is.
func shortly(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(gatherFor)
}

// drain lets a goroutine go on that waits to send what nobody needs.
func drain[T any](updates <-chan T) {
	go func() {
		for range updates {
		}
	}()
}

// reconcile aligns again, if needed says so.
func (k *Keeper) reconcile(needed func() bool) {
	k.owner.Lock.Lock()
	defer k.owner.Lock.Unlock()
	cfg := k.owner.Config()
	if k.gate == nil || cfg == nil || needed != nil && !needed() {
		return
	}
	err := k.Restore(cfg)
	if err != nil && (k.unsettled == nil || k.unsettled.Error() != err.Error()) {
		k.log.Error("hold interfaces to the config", "err", err)
	}
	k.unsettled = err
}

// refused reports whether an interface that is there could not be attached.
func (k *Keeper) refused() bool {
	for _, p := range k.picks {
		if p.index != 0 && k.held[p.index] == nil && k.leave[p.name] == "" {
			return true
		}
	}
	return k.unsettled != nil
}

// watchPins opens the source of events on pins: a bpffs raises them like other
// file systems. Without it the check every two seconds finds the same.
func (k *Keeper) watchPins() *fsnotify.Watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		k.log.Debug("watch pins: looking at them now and then only", "err", err)
		return nil
	}
	drain(w.Errors) // such as too many events: the check finds the rest
	k.addPins(w)
	return w
}

// addPins watches the folders of pins that are there now; to add one again does
// nothing.
func (k *Keeper) addPins(w *fsnotify.Watcher) {
	k.owner.Lock.Lock()
	defer k.owner.Lock.Unlock()
	if w == nil || k.gate == nil {
		return
	}
	for _, dir := range []string{k.pins, linkDir(k.pins), maps.MapDir(k.pins)} {
		if err := w.Add(dir); err != nil {
			k.log.Debug("watch pins", "folder", dir, "err", err)
		}
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func removed(w *fsnotify.Watcher) <-chan fsnotify.Event {
	if w == nil {
		return nil
	}
	return w.Events
}
