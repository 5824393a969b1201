// Command kernels boots Debian's kernels under QEMU, one after the other, with
// a first process that loads the XDP program, runs the packet tables and sends
// real packets (internal/kernels/init), and prints a table of what became of
// it. It downloads the kernels' packages into a cache, some 150 MB the first
// time. It exits 1 where one kernel could not be had, refused the program, or
// failed a frame; a kernel that is too old must refuse it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	cache := flag.String("cache", "bin/kernels", "folder of what is downloaded")
	mirror := flag.String("mirror", "", "URL of Debian's archive (default: the one in this machine's apt)")
	only := flag.String("only", "", "series, with commas: 5.10, 6.1, 6.12, 6.18, 7.x (default: all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := test(ctx, *cache, *mirror, *only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kernels: %v\n", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// test boots the wanted kernels and tells whether all did as they must.
func test(ctx context.Context, cache, mirror, only string) (bool, error) {
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		return false, fmt.Errorf("only Linux on amd64 boots these kernels, not %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return false, err
	}
	a, err := openArchive(filepath.Join(cache, "apt"), mirror, time.Now())
	if err != nil {
		return false, err
	}
	names, err := a.kernels()
	if err != nil {
		return false, err
	}
	init := filepath.Join(cache, "init")
	if err := buildInit(init); err != nil {
		return false, err
	}
	var rows []row
	for _, s := range wanted {
		if only == "" || slices.Contains(strings.Split(only, ","), s.name) {
			rows = append(rows, bootSeries(ctx, s, a, cache, init, names))
		}
	}
	if len(rows) == 0 {
		return false, fmt.Errorf("no series is named %s", only)
	}
	return printRows(os.Stdout, rows), nil
}

func buildInit(to string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to,
		"github.com/headgate/headgate/internal/kernels/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build init: %w\n%s", err, out)
	}
	return nil
}

func bootSeries(ctx context.Context, s series, a *archive, cache, init string, names []string) row {
	image := s.choose(names)
	if image == "" {
		return row{series: s, err: fmt.Errorf("the archive has no kernel %s", s.name)}
	}
	k, err := fetch(a, cache, image, names)
	if err != nil {
		return row{series: s, err: err}
	}
	fmt.Printf("kernels: booting %s\n", image)
	r, err := boot(ctx, k, init, cache)
	return row{series: s, run: r, err: err}
}
