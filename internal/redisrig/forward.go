package redisrig

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Forwarder is a TCP port that leads to a Redis which may change, as a name in
// the DNS does, over a way that may be slow.
type Forwarder struct {
	Addr string

	ln net.Listener

	mu    sync.Mutex
	to    string
	delay time.Duration
	open  map[net.Conn]bool
}

// Forward leads to addr until the test ends.
func Forward(t testing.TB, addr string) *Forwarder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Forwarder{Addr: ln.Addr().String(), ln: ln, to: addr, open: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		f.To("")
		serving.Wait()
	})
	return f
}

// To leads to addr from now on, and ends all connections; to nowhere if it is
// empty.
func (f *Forwarder) To(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = addr
	for c := range f.open {
		c.Close()
	}
}

// Delay makes what goes to Redis arrive so much later.
func (f *Forwarder) Delay(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

func (f *Forwarder) serve(c net.Conn) {
	defer c.Close()
	f.mu.Lock()
	to := f.to
	f.open[c] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.open, c)
		f.mu.Unlock()
	}()
	if to == "" {
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(c, out)
		c.Close()
	}()
	f.carry(out, c)
	out.Close()
	<-back
}

// carry copies from c to out, each piece so late as the delay says.
func (f *Forwarder) carry(out, c net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := out.Write(p.data); err != nil {
				c.Close()
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			f.mu.Lock()
			due := time.Now().Add(f.delay)
			f.mu.Unlock()
			pieces <- piece{due, append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			break
		}
	}
	close(pieces)
	<-done
}
