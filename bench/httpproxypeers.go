package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"

	"github.com/headgate/headgate/internal/load"
)

// proxyConfigs are what the proxies run with, as alike as they can be: no log, as
// many threads, connections to the upstream kept, the same headers added; and the
// same three keys counted: the client's address, its API key and the path.
// Headgate's keys are those of a key file, which it needs to count them for one
// address; the others count whatever they are sent.
//
//go:embed proxies
var proxyConfigs embed.FS

// proxyKind is a product that relays.
type proxyKind struct {
	product string
	limits  string // how it names what it counts with
	config  string // file of proxyConfigs
	tool    string // that must be on this host; empty: it is our own
	args    func(binary, config, dir string) []string
}

var proxyKinds = []proxyKind{
	{"headgate", "3 rules", "headgate.yaml", "", func(binary, config, _ string) []string {
		return []string{binary, "run", "-c", config}
	}},
	{"nginx", "3 limit_req", "nginx.conf", "nginx", func(_, config, dir string) []string {
		return []string{"nginx", "-e", "stderr", "-p", dir, "-c", config}
	}},
	{"haproxy", "3 stick tables", "haproxy.cfg", "haproxy", func(_, config, _ string) []string {
		return []string{"haproxy", "-db", "-q", "-f", config}
	}},
}

// proxySetting is what the templates are filled in with.
type proxySetting struct {
	Dir, Listen, Upstream string
	CPUs                  int
	Limits                bool // count three keys
	Refuse                bool // and refuse all but the first of each API key
}

// proxyUnder is a proxy in one setting, in place.
type proxyUnder struct {
	proxyKind
	proxySetting
	*served
}

// name tells the setting too.
func (p *proxyUnder) name() string {
	switch {
	case p.Refuse:
		return p.product + ", " + p.limits + ", refused"
	case p.Limits:
		return p.product + ", " + p.limits
	}
	return p.product + ", none"
}

// status is what it answers in its steady state.
func (p *proxyUnder) status() int {
	if p.Refuse {
		return 429
	}
	return 200
}

// start writes a config into a folder of its own and starts the proxy with it.
func (k proxyKind) start(b *proxyBench, limits, refuse bool) (*proxyUnder, error) {
	p := &proxyUnder{proxyKind: k, proxySetting: proxySetting{Upstream: b.upstream, CPUs: len(b.proxyCPUs), Limits: limits, Refuse: refuse}}
	var err error
	if p.Dir, err = os.MkdirTemp(b.dir, k.product); err != nil {
		return nil, err
	}
	if p.Listen, err = freeAddress(); err != nil {
		return nil, err
	}
	config := filepath.Join(p.Dir, k.config)
	if err := p.write(config, b.keys); err != nil {
		return nil, err
	}
	args := k.args(b.headgate, config, p.Dir)
	if p.served, err = serve(b.proxyCPUs, args[0], args[1:]...); err != nil {
		return nil, err
	}
	if err := p.awaitPort(b.ctx, p.Listen); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", p.name(), err), p.stop())
	}
	return p, nil
}

// write fills in the config, and a file of so many keys beside it.
func (p *proxyUnder) write(config string, keys int) error {
	t, err := template.ParseFS(proxyConfigs, "proxies/"+p.config)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, p.proxySetting); err != nil {
		return err
	}
	if err := os.WriteFile(config, text.Bytes(), 0o644); err != nil {
		return err
	}
	var known bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&known, "- {sha256: %x, owner: owner-%d}\n", sha256.Sum256([]byte(load.Key(i))), i)
	}
	return os.WriteFile(filepath.Join(p.Dir, "keys.yaml"), known.Bytes(), 0o600)
}

// here returns an error where this host lacks what the proxy needs.
func (k proxyKind) here() error {
	if k.tool == "" {
		return nil
	}
	if _, err := exec.LookPath(k.tool); err != nil {
		return fmt.Errorf("%w (deploy/packages bench)", err)
	}
	return nil
}
