package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	// xdp-filter takes addresses one by one, and has room for 10 000.
	listedSources = 1000

	// filterPins is where xdp-filter keeps its maps, whatever the namespace.
	filterPins = "/sys/fs/bpf/xdp-filter"
	// libxdpPins is where libxdp keeps dispatchers.
	libxdpPins = "/sys/fs/bpf/xdp"
)

// guardXDPFilter lists the sources in xdp-filter. It does not limit: all that
// a listed source sends is dropped.
func guardXDPFilter(w *wire) (guard, error) {
	if exists(filterPins) {
		return guard{}, fmt.Errorf("load xdp-filter: it is in use on this host, %s is there (xdp-filter unload --all)", filterPins)
	}
	shared := exists(libxdpPins)
	iface := w.link.Gate.Interface
	unload := func() error {
		err := ask(w, "xdp-filter", "unload", iface)
		if !shared {
			os.Remove(libxdpPins) // stays where others use it by now
		}
		return err
	}
	if err := ask(w, "xdp-filter", "load", iface, "--mode", "native", "--features", "ipv4"); err != nil {
		return guard{}, err
	}
	for i := range listedSources {
		if err := ask(w, "xdp-filter", "ip", "--mode", "src", floodSource(i).String()); err != nil {
			return guard{}, errors.Join(err, unload())
		}
	}
	return guard{
		refused: func() (uint64, error) { return askCounter(w, `XDP_DROP +(\d+) pkts`, "xdp-filter", "status") },
		close:   unload,
	}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
