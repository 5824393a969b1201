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

	"github.com/headgate/headgate/daemon"
)

// client asks the daemon over its control socket.
type client struct {
	socket string
	http   http.Client
}

func (e *env) client() (*client, error) {
	socket, err := e.socketPath()
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &client{socket: socket, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}, nil
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
	req, err := http.NewRequestWithContext(ctx, method, "http://headgate"+path, body)
	if err != nil {
		return err
	}
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
