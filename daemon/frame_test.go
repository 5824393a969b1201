package daemon

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// linked returns both ends of a link.
func linked(t *testing.T) (down, up *frames) {
	t.Helper()
	down, f, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	if up, err = newFrames(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down.Close(); up.Close() })
	return down, up
}

func soon() time.Time { return time.Now().Add(patience) }

func TestFramesCarryFilesInOrder(t *testing.T) {
	down, up := linked(t)
	var fds []int
	for _, text := range []string{"first", "second"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
		w.Close()
		defer r.Close()
		fds = append(fds, int(r.Fd()))
	}
	// Long enough to take many reads, so that files and body come apart.
	long := strings.Repeat("x", 4<<20)
	sent := make(chan error, 1)
	go func() {
		if err := down.write(order{ID: 1, Do: long}, fds, soon()); err != nil {
			sent <- err
			return
		}
		sent <- down.write(order{ID: 2, Do: "plain"}, nil, soon())
	}()
	var o order
	files, err := up.readWithFiles(&o)
	if err != nil || len(files) != 2 || o.ID != 1 || o.Do != long {
		t.Fatalf("%d files, id %d, %d bytes, %v", len(files), o.ID, len(o.Do), err)
	}
	for i, want := range []string{"first", "second"} {
		got, err := io.ReadAll(files[i])
		files[i].Close()
		if err != nil || string(got) != want {
			t.Errorf("file %d: %q, %v", i, got, err)
		}
	}
	files, err = up.readWithFiles(&o)
	if err != nil || len(files) != 0 || o.ID != 2 {
		t.Errorf("second frame: %d files, id %d, %v", len(files), o.ID, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// The daemon takes neither files nor endless frames from its child.
func TestDaemonTakesLittleFromItsChild(t *testing.T) {
	down, up := linked(t)
	fd, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	before := openFiles(t)
	if err := up.write(answer{ID: 7}, []int{int(fd.Fd())}, soon()); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := down.read(&a); err != nil || a.ID != 7 {
		t.Errorf("id %d, %v", a.ID, err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
	if _, err := up.conn.Write(binary.BigEndian.AppendUint32(nil, maxUp+1)); err != nil {
		t.Fatal(err)
	}
	if err := down.read(&a); err == nil || !strings.Contains(err.Error(), "is over") {
		t.Errorf("a frame too long: %v", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A child that does not read holds nobody up for ever.
func TestWriteGivesUp(t *testing.T) {
	down, _ := linked(t)
	err := down.write(order{Do: strings.Repeat("x", 8<<20)}, nil, time.Now().Add(20*time.Millisecond))
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v, want a timeout", err)
	}
}

func TestReadAfterTheOtherEndClosed(t *testing.T) {
	down, up := linked(t)
	down.Close()
	var o order
	if _, err := up.readWithFiles(&o); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want EOF", err)
	}
}
