// Command headgate is the daemon and the command line of Headgate.
package main

import (
	"context"
	"os"
)

// version is set when linking.
var version = "dev"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], &env{
		in:     os.Stdin,
		out:    os.Stdout,
		err:    os.Stderr,
		getenv: os.Getenv,
		above:  func(name string) string { return inherited("/proc", os.Getppid(), name) },
	}))
}
