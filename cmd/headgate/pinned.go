package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"time"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

const (
	defaultPins  = "/sys/fs/bpf/headgate"
	defaultState = "/var/lib/headgate"
)

// pinned reads what the network gate goes on doing without the daemon, which
// did not answer for the cause dead. Where nothing is pinned, dead is all that
// there is to say.
func (e *env) pinned(dead error) (daemon.Pinned, error) {
	p, err := daemon.Inspect(e.pins(""), e.stateDir(), time.Now())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, dead
	case err != nil:
		return p, fmt.Errorf("%w; what it left pinned cannot be read: %w", dead, err)
	}
	return p, nil
}

// showPinnedStatus is the status without a daemon. It ends in the error dead:
// a script that asks for the status must not take this for a good one.
func showPinnedStatus(e *env, dead error) error {
	p, err := e.pinned(dead)
	if err != nil {
		return err
	}
	st := daemon.Status{
		Dead: true, Faults: []string{dead.Error()}, Network: p.Network, Rules: p.Rules,
		HTTP:   daemon.HTTPStatus{Listeners: []daemon.Listener{}},
		Blocks: countPrefixes(p.Blocks), Allows: countPrefixes(p.Allows),
	}
	if done, err := e.asJSON(st); done {
		return errors.Join(err, dead)
	}
	table(e.out, [][]string{
		{"headgate", "THE DAEMON IS DEAD; what it pinned goes on filtering"},
		{"pins", e.pins("")},
		{"network", networkLine(st.Network)},
		{"http", "down with the daemon"},
		{"lists", fmt.Sprintf("%d blocked, %d allowed", st.Blocks, st.Allows)},
	})
	printAlarms(e, st)
	fmt.Fprintln(e.out)
	printRules(e, st.Rules)
	printDrops(e, st.Network.Reasons)
	e.warn(st.Network.Warnings)
	return dead
}

func countPrefixes(list []daemon.Entry) int {
	seen := map[string]bool{}
	for _, x := range list {
		seen[x.Prefix.String()] = true
	}
	return len(seen)
}

// pins is the folder of the pins, also where the config cannot be read.
func (e *env) pins(flag string) string {
	if cfg, err := config.Load(e.configPath()); err == nil {
		return firstOf(flag, cfg.State.Pins)
	}
	return firstOf(flag, e.lineOfConfig("pins"), defaultPins)
}

func (e *env) stateDir() string {
	if cfg, err := config.Load(e.configPath()); err == nil {
		return cfg.State.Dir
	}
	return firstOf(e.lineOfConfig("dir"), defaultState)
}

// lineOfConfig is the value of a key of the config, found by eye: a config that
// is broken must not keep its user from the daemon, or from what it left.
func (e *env) lineOfConfig(key string) string {
	data, err := os.ReadFile(e.configPath())
	if err != nil {
		return ""
	}
	line := regexp.MustCompile(`(?m)^(?:[^#\n]*[\s{,])?` + key + `:\s*["']?([^\s,"'}#]+)`)
	if m := line.FindSubmatch(data); m != nil {
		return string(m[1])
	}
	return ""
}
