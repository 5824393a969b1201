package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// savedAt is when a state file was written, by two clocks.
type savedAt struct {
	Wall time.Time     `json:"wall,omitzero"`
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"up,omitempty"` // CLOCK_BOOTTIME
}

// stepped returns by how much the wall clock has moved otherwise than time did
// since s, so that ends of then hold now. Over a new start of the host only a
// clock that was set back is known of: it counts as having stood still.
func (s savedAt) stepped(now time.Time, boot bootTime) time.Duration {
	switch wall := now.Round(0); {
	case s.Wall.IsZero():
		return 0
	case s.Boot != "" && s.Boot == boot.id:
		return wall.Sub(s.Wall) - (boot.since - s.Up)
	case wall.Before(s.Wall):
		return wall.Sub(s.Wall)
	}
	return 0
}

// shift moves all ends of s.
func (s *state) shift(by time.Duration) {
	move := func(end *time.Time) {
		if !end.IsZero() {
			*end = end.Add(by)
		}
	}
	for i := range s.Rules {
		move(&s.Rules[i].End)
	}
	s.Posted = s.Posted.moved(func(end time.Time) time.Time { return end.Add(by) })
	for _, list := range [][]Entry{s.Blocks, s.Allows} {
		for i := range list {
			move(&list[i].End)
		}
	}
	for _, list := range []bulks{s.BlockImports, s.AllowImports} {
		for _, b := range list {
			move(&b.End)
		}
	}
}

// old is the state before the last change, for the case that the file is
// damaged.
func (s store) old() string { return s.path + ".old" }

// keepOld keeps the file that is about to be replaced. That it cannot be kept
// is no reason not to replace it.
func (s store) keepOld() {
	os.Remove(s.old())
	os.Link(s.path, s.old())
}

// setAside moves the state file out of the way, under a name that says why, and
// returns that; empty if there is no file.
func (s store) setAside(why string) (string, error) {
	to := s.path + "." + why
	err := os.Rename(s.path, to)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return to, err
}

// noteWritten takes the file as it is for what is to be there.
func (s store) noteWritten() {
	*s.written = nil
	if st, err := os.Stat(s.path); err == nil {
		*s.written = st
	}
}

// same reports whether the state file is the one that was written last. Before
// the first write it may be any.
func (s store) same() error {
	if *s.written == nil {
		return nil
	}
	now, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is gone", s.path)
	case err != nil:
		return err
	case !os.SameFile(now, *s.written) || now.Size() != (*s.written).Size() || !now.ModTime().Equal((*s.written).ModTime()):
		return fmt.Errorf("%s was changed by others", s.path)
	}
	return nil
}
