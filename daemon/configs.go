package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// keptConfigs is how many configs are kept beside the one in force.
const keptConfigs = 20

// configs keeps the texts of configs that were in force, a file each in dir,
// named NUMBER-TIME-HASH.yaml.
type configs struct{ dir string }

// KeptConfig is one config that was in force.
type KeptConfig struct {
	Number int       `json:"number"` // for rollback; never given twice
	Kept   time.Time `json:"kept"`   // when it was put in force
	Hash   string    `json:"hash"`   // its first digits
	Now    bool      `json:"in_force,omitempty"`

	file string
}

const configTime = "20060102T150405Z"

// list returns what is kept, the oldest first. Other files are passed over.
func (c configs) list() ([]KeptConfig, error) {
	files, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the configs kept: %w", err)
	}
	var all []KeptConfig
	for _, f := range files {
		part := strings.SplitN(strings.TrimSuffix(f.Name(), ".yaml"), "-", 3)
		if len(part) != 3 {
			continue
		}
		number, err := strconv.Atoi(part[0])
		at, timeErr := time.Parse(configTime, part[1])
		if err == nil && timeErr == nil {
			all = append(all, KeptConfig{Number: number, Kept: at, Hash: part[2], file: f.Name()})
		}
	}
	slices.SortFunc(all, func(a, b KeptConfig) int { return a.Number - b.Number })
	return all, nil
}

// keep makes text the newest that is kept, unless it is that already, and
// removes the oldest beyond keptConfigs.
func (c configs) keep(text []byte, hash string, now time.Time) (KeptConfig, error) {
	all, err := c.list()
	if err != nil {
		return KeptConfig{}, err
	}
	next := KeptConfig{Number: 1, Kept: now.Round(0).UTC().Truncate(time.Second), Hash: short(hash)}
	if n := len(all); n > 0 {
		last := all[n-1]
		if old, err := os.ReadFile(filepath.Join(c.dir, last.file)); err == nil && string(old) == string(text) {
			return last, nil
		}
		next.Number = last.Number + 1
	}
	next.file = fmt.Sprintf("%06d-%s-%s.yaml", next.Number, next.Kept.Format(configTime), next.Hash)
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return next, fmt.Errorf("keep the config: %w", err)
	}
	if err := renameio.WriteFile(filepath.Join(c.dir, next.file), text, 0o600); err != nil {
		return next, fmt.Errorf("keep the config: %w (make room in %s)", err, c.dir)
	}
	for len(all) > keptConfigs {
		if err := os.Remove(filepath.Join(c.dir, all[0].file)); err != nil {
			return next, fmt.Errorf("remove an old config: %w", err)
		}
		all = all[1:]
	}
	return next, nil
}

// read returns the text of one that is kept.
func (c configs) read(number int) ([]byte, error) {
	all, err := c.list()
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if k.Number == number {
			return os.ReadFile(filepath.Join(c.dir, k.file))
		}
	}
	return nil, notThere("no config %d is kept (see: headgate rollback --list)", number)
}

// before returns the newest that is not text: what was in force before it.
func (c configs) before(text []byte) (int, error) {
	all, err := c.list()
	if err != nil {
		return 0, err
	}
	for _, k := range slices.Backward(all) {
		if old, err := os.ReadFile(filepath.Join(c.dir, k.file)); err == nil && string(old) != string(text) {
			return k.Number, nil
		}
	}
	return 0, notThere("no earlier config is kept, so there is nothing to go back to")
}
