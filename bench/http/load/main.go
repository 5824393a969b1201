// Command load drives a proxy for the benchmarks, from a process of its own, and
// prints what came of it as JSON; or it is the upstream:
//
//	load upstream
//	load drive '{"URL": "http://127.0.0.1:8080/", "Keys": 10, "Connections": 8, "Rate": 1000, "For": 1000000000}'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/internal/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "upstream":
		return upstream(ctx)
	case len(args) == 2 && args[0] == "drive":
		var l load.Load
		if err := json.Unmarshal([]byte(args[1]), &l); err != nil {
			return fmt.Errorf("read the load: %w", err)
		}
		return drive(ctx, l)
	}
	return errors.New("usage: load upstream, or load drive JSON")
}

// upstream prints the address that it listens on, and answers until its standard
// input ends: so it does not outlive who started it.
func upstream(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ln.Close()
	}()
	return load.Upstream(ln)
}

func drive(ctx context.Context, l load.Load) error {
	way := load.Closed
	if l.Rate > 0 {
		way = open
	}
	r, err := way(ctx, l)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
