// Package attachments keeps the network gate's programs on the interfaces that
// network.interfaces stands for, while these come, go and change their names
// and while others take programs and pins away. The host's links, routes,
// neighbours and addresses are asked for and followed here and nowhere else.
package attachments

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/folderlock"
	"github.com/headgate/headgate/maps"
)

// Owner is what a Keeper is told by the daemon that it works for.
type Owner struct {
	Log *slog.Logger

	// Lock is held by the caller of every method of the Keeper, but of Follow
	// and CheckGateways, which take it.
	Lock sync.Locker

	// Config is what is in force; nil: nothing is to be attached now. The Keeper
	// asks with Lock held.
	Config func() *config.Config

	// Moved is called, with Lock held, when interfaces may have other indices
	// than before: rules that name them are to follow.
	Moved func(Surroundings) error
}

// Keeper keeps what is attached. The zero Keeper is not usable: New makes one.
type Keeper struct {
	owner Owner
	log   *slog.Logger

	gate *maps.Gate // whose programs they are; nil: it is not open
	pins string
	lock *os.File // on the folder of pins

	held      map[int]*hold     // what is attached, by index; nil: not looked at yet
	picks     []pick            // what network.interfaces stood for when last looked at
	faults    map[string]string // interface, or item of the config → why it is not as the config says
	leave     map[string]string // interface → why it is left alone until a reload
	lost      map[string]string // interface → how its program was taken off, until it is back
	left      []string          // what patterns left out, as last logged
	pinFault  string            // what is wrong with the pins
	unsettled error             // of the last reconcile
	repairs   repairLog

	checks    []gatewayCheck
	checkDue  chan struct{}
	unchecked map[string]bool // interfaces that are attached without a check

	stub programs // in the place of the gate's programs: for tests
}

// New returns a Keeper that holds nothing. It works once a folder of pins was
// claimed and a gate is in use.
func New(o Owner) *Keeper {
	k := &Keeper{owner: o, log: o.Log, checkDue: make(chan struct{}, 1)}
	k.Forgive()
	return k
}

// Forgive forgets why interfaces are left alone: a start or a reload tries all.
func (k *Keeper) Forgive() {
	k.leave, k.lost, k.unchecked = map[string]string{}, map[string]string{}, map[string]bool{}
}

// Claim makes the folder of pins this process's own until Release. The error
// names the process that has it. Where the folder cannot be made there is none:
// to open the gate there says what is missing.
func (k *Keeper) Claim(pins string) error {
	k.pins = pins
	if k.lock != nil || os.MkdirAll(pins, 0o700) != nil {
		return nil
	}
	lock, err := claim(pins)
	if err == nil {
		k.lock = lock
	}
	return err
}

// claim locks a folder of pins that is ours. Anyone may make folders in a bpffs
// with its usual mode, and the owner of a folder removes what is in it.
func claim(pins string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Lstat(pins, &st); err != nil {
		return nil, fmt.Errorf("look at %s: %w", pins, err)
	}
	if uid := os.Geteuid(); st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != uid {
		return nil, fmt.Errorf("%s is no folder of user %d, so others could take the pins away (its owner is user %d: remove it, or set state.pins to another)", pins, uid, st.Uid)
	}
	return folderlock.Take(pins)
}

// Use makes the programs of g, which is pinned in the folder that was claimed,
// those to attach.
func (k *Keeper) Use(g *maps.Gate) { k.gate = g }

// Release lets go of all that is attached, which stays attached, and of the
// folder of pins.
func (k *Keeper) Release() {
	closeAll(k.held)
	k.held, k.picks, k.faults, k.pinFault, k.gate = nil, nil, nil, "", nil
	if k.lock != nil {
		k.lock.Close()
		k.lock = nil
	}
}

// Interfaces returns the names of those that hold a program of ours, sorted.
func (k *Keeper) Interfaces() []string {
	names := []string{}
	for _, h := range k.held {
		names = append(names, h.name)
	}
	slices.Sort(names)
	return names
}
