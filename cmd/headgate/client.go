package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/headgate/headgate/daemon"
)

// client asks the daemon over its control socket.
type client struct {
	socket string
	header http.Header // from where the user asks
	http   http.Client
	wait   time.Duration // for an answer
}

// askTime is how long a daemon may take to answer. Its slowest work, a reload
// with a large config, has 10 s for each of several steps.
const askTime = time.Minute

func (e *env) client() (*client, error) {
	socket, err := e.socketPath()
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &client{socket: socket, header: e.whence(), wait: askTime, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}, nil
}

// whence tells the daemon from where its user asks, for the record of changes
// and so that he does not lock himself out.
func (e *env) whence() http.Header {
	h := http.Header{}
	if s := e.inherit("SSH_CONNECTION"); s != "" {
		h.Set(daemon.SessionHeader, s)
	}
	if s := e.inherit("SUDO_USER"); s != "" {
		h.Set(daemon.SudoHeader, s)
	}
	return h
}

// inherit returns a variable of the environment, or of the processes above:
// sudo and su take some out.
func (e *env) inherit(name string) string {
	v := e.getenv(name)
	if v == "" && e.above != nil {
		v = e.above(name)
	}
	return v
}

// unreachable is an error of the way to the daemon: it was not asked.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

// errNoDaemon is wrapped by the error of a socket that nobody answers on.
var errNoDaemon = errors.New("no daemon answers")

// ask sends in, if not nil, and reads the answer into out.
func (c *client) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://headgate"+path, body)
	if err != nil {
		return err
	}
	req.Header = c.header.Clone()
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable{c.unanswered(err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return problem(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	return nil
}

// unanswered says in one line why nobody answered and what helps.
func (c *client) unanswered(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("may not use %s (be root, or join the group headgate)", c.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s (start it: headgate run; if it uses another socket: --socket PATH or -c FILE)", errNoDaemon, c.socket)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return fmt.Errorf("the daemon on %s ended before it answered (see its log; start it: headgate run)", c.socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the daemon on %s did not answer within %s: look at its log, or kill it: what it attached goes on filtering", c.socket, c.wait)
	}
	return fmt.Errorf("ask the daemon on %s: %w", c.socket, err)
}

// problem turns an answer that is no success into an error with its exit code.
func problem(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p daemon.Problem
	if json.Unmarshal(data, &p) != nil || p.Error == "" {
		return fmt.Errorf("the daemon answered %s", resp.Status)
	}
	if resp.StatusCode == http.StatusBadRequest {
		return badInput{errors.New(p.Error)}
	}
	return errors.New(p.Error)
}

// ask is client and ask in one.
func (e *env) ask(ctx context.Context, method, path string, in, out any) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	return c.ask(ctx, method, path, in, out)
}
