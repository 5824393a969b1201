package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/folderlock"
)

// stateNames are all that a daemon keeps in state.dir.
var stateNames = []string{
	"state.json", "state.json.old", "imports", "lists", "configs", "history.jsonl", "hits.json", "trial.json",
	secretFile, verifierLog, bucketFile, bucketsHalf,
}

// dropHalves removes what a daemon that was killed had begun to write in dir:
// files that renameio names after the one that they were to become.
func dropHalves(dir string) error {
	var errs []error
	for _, name := range stateNames {
		halves, err := filepath.Glob(filepath.Join(dir, "."+name+"[0-9]*"))
		errs = append(errs, err)
		for _, path := range halves {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// Purge removes what was added from the command line and all else that a daemon
// kept in dir, then dir itself if nothing is left in it. Files of others stay,
// and nothing is removed while a daemon lives there.
func Purge(dir string) error {
	lock, err := folderlock.Take(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("purge: %w (stop that daemon first)", err)
	}
	defer lock.Close()
	if err := dropHalves(dir); err != nil {
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	for _, name := range stateNames {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("purge %s: %w", dir, err)
		}
	}
	err = os.Remove(dir)
	switch {
	case errors.Is(err, unix.ENOTEMPTY): // of others
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EROFS): // a container's mount point stays, empty
	case err != nil:
		return fmt.Errorf("purge %s: %w", dir, err)
	}
	return nil
}
