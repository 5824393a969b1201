package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// What the HTTP gate's buckets have spent outlives a planned stop of its process
// in a file of state.dir: the daemon makes it, the process that stops writes it, the
// next one reads it, once. It begins with the id of the host's start and the time
// since then at which the stop was ordered; then comes when the rest was written,
// by two clocks; the rest is the store's.
const (
	bucketFile   = "buckets"
	bucketsHalf  = bucketFile + ".new" // until it is whole
	mostBuckets  = 64 << 20            // bytes
	saveTime     = 3 * time.Second     // to write it, after the drain
	bootIDSize   = 40
	orderedSize  = bootIDSize + 8
	bucketsHead  = orderedSize + 16
	slackBuckets = 1 << 20 // accounts of rules
)

// stopTime is how long a planned stop of the HTTP gate's process may take.
const stopTime = drainTime + saveTime + time.Second

// createBuckets makes the file that a process which stops writes to.
func createBuckets(dir string, boot bootTime) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, bucketsHalf), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("save buckets: %w", err)
	}
	head := make([]byte, bootIDSize, orderedSize)
	copy(head, boot.id)
	if _, err := f.Write(binary.LittleEndian.AppendUint64(head, uint64(boot.since))); err != nil {
		f.Close()
		return nil, fmt.Errorf("save buckets: %w", err)
	}
	return f, nil
}

// keepBuckets makes what a process has written the file that the next one reads,
// or removes it.
func keepBuckets(dir string, f *os.File, whole bool) error {
	st, err := f.Stat()
	f.Close()
	half := filepath.Join(dir, bucketsHalf)
	if err != nil || !whole || st.Size() <= bucketsHead {
		return errors.Join(err, os.Remove(half))
	}
	return os.Rename(half, filepath.Join(dir, bucketFile))
}

// openBuckets returns what a process left, nil if there is nothing. It is read
// once: whatever comes of it, it is removed, lest it be taken for newer than it is.
func openBuckets(dir string) (*os.File, error) {
	path := filepath.Join(dir, bucketFile)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the saved buckets: %w", err)
	}
	return f, nil
}

// saveBuckets is the child's part: it writes what g's buckets have spent to f.
func saveBuckets(f io.Writer, g *l7.Gate) (limit.Saved, error) {
	return saveBucketsAt(&timely{f, time.Now().Add(saveTime)}, g, time.Now(), bootClock())
}

func saveBucketsAt(w io.Writer, g *l7.Gate, now time.Time, boot bootTime) (limit.Saved, error) {
	stamp := binary.LittleEndian.AppendUint64(nil, uint64(now.UnixNano()))
	stamp = binary.LittleEndian.AppendUint64(stamp, uint64(boot.since))
	if _, err := w.Write(stamp); err != nil {
		return limit.Saved{}, err
	}
	return g.Save(w, mostBuckets)
}

// timely writes until a moment, so that a slow disk does not hold up a stop.
type timely struct {
	w     io.Writer
	until time.Time
}

func (t *timely) Write(b []byte) (int, error) {
	if !time.Now().Before(t.until) {
		return 0, fmt.Errorf("more than %v for it: the disk is slow", saveTime)
	}
	return t.w.Write(b)
}

// BucketsRestored tells what came of the buckets that the last process left when
// it was stopped.
type BucketsRestored struct {
	limit.Saved
	Ago   float64 `json:"ago"`  // seconds between its stop and this start
	Took  float64 `json:"took"` // seconds that its stop took, up to then
	Error string  `json:"error,omitempty"`
}

// restoreBuckets is the child's part: it charges to g's buckets what f says.
func restoreBuckets(f io.Reader, g *l7.Gate, now time.Time, boot bootTime) *BucketsRestored {
	done := &BucketsRestored{}
	data, err := io.ReadAll(io.LimitReader(f, bucketsHead+mostBuckets+slackBuckets+1))
	switch {
	case err == nil && len(data) <= bucketsHead:
		err = limit.ErrSaved
	case err == nil && len(data) > bucketsHead+mostBuckets+slackBuckets:
		err = fmt.Errorf("more than %d MiB of them", mostBuckets>>20)
	}
	if err == nil {
		number := func(at int) time.Duration { return time.Duration(binary.LittleEndian.Uint64(data[at:])) }
		ordered, wall, since := number(bootIDSize), number(orderedSize), number(orderedSize+8)
		ago := time.Duration(now.UnixNano()) - wall
		if id := string(bytes.TrimRight(data[:bootIDSize], "\x00")); id != "" && id == boot.id {
			ago = boot.since - since
		}
		ago = max(0, ago)
		done.Ago, done.Took = ago.Seconds(), (since - ordered).Seconds()
		done.Saved, err = g.Restore(data[bucketsHead:], ago)
	}
	if err != nil {
		done.Error = err.Error()
	}
	return done
}

// halt stops a child in the planned way, and keeps its buckets for the next.
func (h *httpGate) halt(c *childLink) {
	began := time.Now()
	f, err := createBuckets(h.dir, bootClock())
	if err != nil {
		h.log.Warn("the HTTP gate's buckets will start full", "err", err)
	}
	whole := c.stop(f)
	if f != nil {
		if err := keepBuckets(h.dir, f, whole); err != nil {
			h.log.Warn("the HTTP gate's buckets will start full", "err", err)
		}
	}
	h.log.Info("http gate stopped", "took", time.Since(began).Round(time.Millisecond), "buckets_saved", f != nil && whole)
}

// giveBack gives a new child what the one before has left.
func (h *httpGate) giveBack(ctx context.Context, c *childLink) error {
	f, err := openBuckets(h.dir)
	if err != nil {
		h.log.Warn("the HTTP gate's buckets start full", "err", err)
	}
	if f == nil {
		return nil
	}
	defer f.Close()
	return h.ordered(ctx, c, func(ctx context.Context) error { return c.back(ctx, f) })
}

// noteRestored tells what came of the buckets, in the log and to status.
func (h *httpGate) noteRestored(b *BucketsRestored) {
	if b != nil {
		b.Error = b.Error[:min(len(b.Error), longestWord)]
	}
	h.mu.Lock()
	h.restored = b
	h.mu.Unlock()
	switch {
	case b == nil:
	case b.Error != "":
		h.log.Warn("the HTTP gate's buckets start full", "err", b.Error)
	default:
		h.log.Info("the HTTP gate's buckets go on", "keys", b.Keys, "left", b.Left, "after", time.Duration(b.Ago*float64(time.Second)).Round(time.Millisecond))
	}
}
