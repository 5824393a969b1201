package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// patience is how long a connection may take to open.
const patience = 10 * time.Second

// Closed drives l in a closed loop: each connection sends its next request when
// the last was answered. So it finds the most that a proxy can do, and says
// nothing of latency: while the proxy is slow, fewer ask. A proxy that does not
// answer at all holds it up for ever.
func Closed(ctx context.Context, l Load) (Report, error) {
	u, err := url.Parse(l.URL)
	if err != nil {
		return Report{}, fmt.Errorf("load: %w", err)
	}
	requests := make([][]byte, l.Keys)
	for i := range requests {
		requests[i] = fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n\r\n", u.RequestURI(), u.Host, KeyHeader, Key(i))
	}
	begin := time.Now()
	from, until := begin.Add(l.Warm), begin.Add(l.Warm+l.For)
	reports := make([]Report, l.Connections)
	var all sync.WaitGroup
	for i := range reports {
		all.Go(func() {
			c := caller{address: u.Host, requests: requests, next: i * l.Keys / l.Connections}
			defer c.close()
			reports[i] = c.loop(ctx, from, until)
		})
	}
	all.Wait()
	var total Report
	for _, r := range reports {
		total.Add(r)
	}
	return total, ctx.Err()
}

// caller is one connection of a closed loop.
type caller struct {
	address  string
	requests [][]byte
	next     int
	conn     net.Conn // nil: none is open
	in       *bufio.Reader
}

func (c *caller) loop(ctx context.Context, from, until time.Time) Report {
	r := Report{Answers: map[int]uint64{}}
	for ctx.Err() == nil {
		status, err := c.ask()
		now := time.Now()
		if err != nil {
			c.close()
			r.Fail(1, err.Error())
			if r.Failed >= 10 {
				return r
			}
			continue
		}
		r.Sent++
		if now.After(from) {
			r.Answers[status]++
			r.Seconds = now.Sub(from).Seconds()
		}
		if now.After(until) {
			return r
		}
	}
	return r
}

// ask sends the next request and reads its answer.
func (c *caller) ask() (status int, err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.address, patience); err != nil {
			return 0, err
		}
		c.in = bufio.NewReaderSize(c.conn, 4<<10)
	}
	request := c.requests[c.next%len(c.requests)]
	c.next++
	if _, err := c.conn.Write(request); err != nil {
		return 0, err
	}
	status, last, err := readAnswer(c.in)
	if last {
		c.close()
	}
	return status, err
}

func (c *caller) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// readAnswer reads an answer with a Content-Length and reports whether it is the
// last of its connection.
func readAnswer(in *bufio.Reader) (status int, last bool, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, false, fmt.Errorf("read the status line: %w", err)
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return 0, false, fmt.Errorf("no status line: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, false, fmt.Errorf("status line %q: %w", line, err)
	}
	length := -1
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return 0, false, fmt.Errorf("read a header: %w", err)
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, false, fmt.Errorf("header %q: %w", line, err)
			}
		case bytes.EqualFold(name, []byte("Connection")):
			last = bytes.EqualFold(value, []byte("close"))
		}
	}
	if length < 0 {
		return 0, false, errors.New("an answer without Content-Length")
	}
	if _, err = in.Discard(length); err != nil {
		return 0, false, fmt.Errorf("read the body: %w", err)
	}
	return status, last, nil
}
