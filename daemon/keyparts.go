package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/headgate/headgate/config"
)

// keyPart is a part of a config.Keyring's block on its way to the HTTP gate's
// process: parts come in order, one frame each, so that neither side holds all
// of it as JSON.
type keyPart struct {
	Size int    `json:"size"` // of the block
	At   int    `json:"at"`   // where the part begins
	Part []byte `json:"part"`
	Use  bool   `json:"use"` // put the keys in force with the last part; else the next policy does
}

const (
	keyPartSize = 1 << 20

	// muchKeyed is how many bytes of keys leave so much garbage behind them that
	// it is worth giving back at once: key files change seldom.
	muchKeyed = 1 << 20
)

// freeKeys gives the memory of keys that are no longer in force back, without
// waiting for it. What is kept for the next request, as sync.Pool does, holds on
// to what the last one saw until it was collected twice.
func freeKeys() {
	go func() {
		runtime.GC()
		debug.FreeOSMemory()
	}()
}

// sendKeys gives the child keys, to be put in force now, or by the next policy.
func (c *childLink) sendKeys(ctx context.Context, keys *config.Keyring, use bool) error {
	if keys == nil {
		keys = config.NewKeyring(nil)
	}
	block := keys.Block()
	for at := 0; at < len(block); at += keyPartSize {
		part := block[at:min(at+keyPartSize, len(block))]
		a, err := c.ask(ctx, order{Do: orderKeys, Keys: &keyPart{len(block), at, part, use}}, nil)
		if err == nil && a.Error != "" {
			err = fmt.Errorf("%w: %s", errRefused, a.Error)
		}
		if err != nil {
			return fmt.Errorf("send it %d keys: %w", keys.Len(), err)
		}
	}
	return nil
}

// keyIntake is the child's side of sendKeys.
type keyIntake struct {
	block []byte // grows to its size
	ready *config.Keyring
}

// take returns the keys that came, nil if none did, and forgets them.
func (k *keyIntake) take() *config.Keyring {
	ready := k.ready
	k.ready = nil
	return ready
}

// add returns whether all parts are there.
func (k *keyIntake) add(p *keyPart) (whole bool, err error) {
	if p.At == 0 {
		k.block, k.ready = make([]byte, 0, p.Size), nil
	}
	if p.At != len(k.block) || p.Size != cap(k.block) || len(p.Part) > p.Size-p.At {
		return false, errors.New("a part of the keys is missing")
	}
	k.block = append(k.block, p.Part...)
	if len(k.block) < p.Size {
		return false, nil
	}
	k.ready, err = config.OpenKeyring(k.block)
	k.block = nil
	return err == nil, err
}

// takeKeys takes a part of the keys, and puts them in force if they are to be.
func (c *httpChild) takeKeys(p *keyPart) error {
	whole, err := c.keys.add(p)
	if err != nil || !whole || !p.Use {
		return err
	}
	if err := c.gate.SetKeys(c.keys.take()); err != nil {
		return err
	}
	if p.Size > muchKeyed {
		freeKeys() // those before
	}
	return nil
}
