package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/daemon"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"headgate": main})
}

// patience is how long a session waits for what must come. It is no measure of
// speed: only a test that fails waits that long.
const patience = 30 * time.Second

// TestSessions runs testdata/*.txt: command lines against a daemon of their own
// without network gate, on a loopback address of their own.
func TestSessions(t *testing.T) {
	var hosts atomic.Uint32
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "upstream "+r.URL.Path)
			}))
			e.Defer(up.Close)
			n := uint32(os.Getpid())<<8 | hosts.Add(1)&0xff
			e.Setenv("HOST", fmt.Sprintf("127.%d.%d.%d", 1+n>>16%250, n>>8&0xff, n&0xff))
			e.Setenv("UPSTREAM", up.URL)
			e.Setenv("HEADGATE_CONFIG", filepath.Join(e.WorkDir, "headgate.yaml"))
			e.Setenv("SSH_CONNECTION", "")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"expand": expand,
			"ready":  ready,
			"until":  until,
			"hup":    hup,
			"http":   request,
			"fields": fields,
			"exits":  exits,
		},
	})
}

// expand FILE... puts the environment into files: $WORK, $HOST, $UPSTREAM.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		path := ts.MkAbs(name)
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(path, []byte(text), 0o644))
	}
}

// ask asks the session's daemon.
func ask(ts *testscript.TestScript, path string, out any) error {
	e := &env{getenv: ts.Getenv}
	return e.ask(context.Background(), http.MethodGet, path, nil, out)
}

// ready waits until the daemon is up and both gates do what the config says.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	wait(ts, "the daemon is ready", func() (bool, string) {
		var st daemon.Status
		err := ask(ts, "/v1/status", &st)
		return err == nil && st.Ready, fmt.Sprint(err, st.Faults)
	})
}

// until VALUE PATH FIELD... waits until a field of an answer has that value.
func until(ts *testscript.TestScript, _ bool, args []string) {
	wait(ts, strings.Join(args, " "), func() (bool, string) {
		var v any
		if err := ask(ts, args[1], &v); err != nil {
			return false, err.Error()
		}
		got := dig(v, args[2:])
		return got == args[0], got
	})
}

func wait(ts *testscript.TestScript, what string, ok func() (bool, string)) {
	end := time.Now().Add(patience)
	for {
		done, state := ok()
		if done {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("waited in vain for %s: %s", what, state)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dig follows names and indices into decoded JSON and prints what is there.
func dig(v any, path []string) string {
	for _, p := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(x) {
				return "nothing"
			}
			v = x[i]
		default:
			return "nothing"
		}
	}
	return fmt.Sprint(v)
}

// fields FILE FIELD... demands that a JSON object has these fields.
func fields(ts *testscript.TestScript, neg bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	if got := dig(v, args[1:len(args)-1]); (got == args[len(args)-1]) == neg {
		ts.Fatalf("%s is %s", strings.Join(args[1:len(args)-1], "."), got)
	}
}

// exits CODE COMMAND... demands an exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d", got)
	}
}

// hup sends SIGHUP to the daemon.
func hup(ts *testscript.TestScript, _ bool, _ []string) {
	var st daemon.Status
	ts.Check(ask(ts, "/v1/status", &st))
	ts.Check(syscall.Kill(st.PID, syscall.SIGHUP))
}

// http CODE METHOD PATH [FROM [HEADER...]] makes one request through the HTTP
// gate, from a loopback address of its own choice, with headers as whole lines.
func request(ts *testscript.TestScript, _ bool, args []string) {
	dialer := &net.Dialer{}
	if len(args) > 3 {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(args[3])}
	}
	c := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequest(args[1], "http://"+ts.Getenv("HOST")+":8080"+args[2], nil)
	ts.Check(err)
	for _, line := range args[min(len(args), 4):] {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	resp, err := c.Do(req)
	ts.Check(err)
	resp.Body.Close()
	if got := strconv.Itoa(resp.StatusCode); got != args[0] {
		ts.Fatalf("%s %s: %s, want %s", args[1], args[2], resp.Status, args[0])
	}
}
