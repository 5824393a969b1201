package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/await"
)

// rule is a config with one rule, whose limit tells the versions apart.
func rule(limit int) string {
	return fmt.Sprintf("rules: [{name: login, match: {path: /login}, per: client, limit: %d/min}]", limit)
}

// limit is the limit of the rule in force.
func (b *bench) limit() int64 {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	return b.d.policy.rules[0].Rate.Amount
}

func (b *bench) conf() reloadStatus {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	return b.d.conf
}

// put writes a file as it is meant to end up, in one of many ways.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// RC-015: every way in which files change is seen, and each change is applied
// exactly once.
func TestFileChangesAreSeen(t *testing.T) {
	b := newBench(t, rule(1))
	// Kubernetes: headgate.yaml → ..data/headgate.yaml, ..data → ..v1.
	volume := func(version int) {
		dir := filepath.Join(b.dir, fmt.Sprintf("..v%d", version))
		try(t, os.Mkdir(dir, 0o755))
		put(t, filepath.Join(dir, "headgate.yaml"), b.text(rule(version)))
		try(t, os.Symlink(filepath.Base(dir), filepath.Join(b.dir, "..tmp")))
		try(t, os.Rename(filepath.Join(b.dir, "..tmp"), filepath.Join(b.dir, "..data")))
	}
	elsewhere := filepath.Join(t.TempDir(), "real.yaml")
	background(t, b.d.watchConfig)
	steps := []struct {
		name   string
		change func(version int)
	}{
		{"plain edit", func(v int) { put(t, b.config, b.text(rule(v))) }},
		{"rename over, as editors do", func(v int) {
			put(t, b.config+"~", b.text(rule(v)))
			try(t, os.Rename(b.config+"~", b.config))
		}},
		{"moved away and written anew", func(v int) {
			try(t, os.Rename(b.config, b.config+".bak"))
			put(t, b.config, b.text(rule(v)))
		}},
		{"truncate, then write in pieces", func(v int) {
			f, err := os.Create(b.config)
			try(t, err)
			text := b.text(rule(v))
			for _, part := range []string{text[:20], text[20:]} {
				_, err = f.WriteString(part)
				try(t, err)
				try(t, f.Sync())
			}
			try(t, f.Close())
		}},
		{"same size and same content but for a figure, old time", func(v int) {
			put(t, b.config, b.text(rule(v)))
			try(t, os.Chtimes(b.config, time.Unix(1, 0), time.Unix(1, 0)))
		}},
		{"symlink to a volume", func(v int) {
			volume(v)
			try(t, os.Symlink("..data/headgate.yaml", b.config+"~"))
			try(t, os.Rename(b.config+"~", b.config))
		}},
		{"swap of the volume", volume},
		{"another swap", volume},
		{"symlink out of the folder", func(v int) {
			put(t, elsewhere, b.text(rule(v)))
			try(t, os.Symlink(elsewhere, b.config+"~"))
			try(t, os.Rename(b.config+"~", b.config))
		}},
		// No event reaches the folder: as on NFS, only a look at the file tells.
		{"edit out of the folder", func(v int) { put(t, elsewhere, b.text(rule(v))) }},
	}
	hash := b.conf().hash
	for i, s := range steps {
		version := i + 2
		s.change(version)
		await.For(t, s.name+" is applied", func() bool { return b.limit() == int64(version) })
		await.For(t, s.name+" is told", func() bool { return b.conf().generation == uint64(version) })
		now := b.conf()
		if now.hash == hash || now.err != nil {
			t.Errorf("%s: hash %s, %v", s.name, now.hash, now.err)
		}
		hash = now.hash
	}
	// Events of the last changes may still come; SIGHUP makes one more look.
	// The content is the same, so none of it is a change.
	hangup := make(chan os.Signal, 1)
	background(t, func(ctx context.Context) error { return b.d.obeyHangups(ctx, hangup) })
	version := len(steps) + 2
	put(t, elsewhere, b.text(rule(version)))
	hangup <- syscall.SIGHUP
	await.For(t, "SIGHUP reloads", func() bool { return b.conf().generation == uint64(version) })
	if _, err := b.d.reload(t.Context(), true); err != nil || b.conf().generation != uint64(version) {
		t.Errorf("the same once more: generation %d, %v", b.conf().generation, err)
	}
	if n := strings.Count(b.log.String(), "config reloaded"); n != version-1 {
		t.Errorf("applied %d times, want %d:\n%s", n, version-1, b.log)
	}
}

// RC-009 (2): a bad file leaves all as it was, and is told once.
func TestBadFileChangesNothing(t *testing.T) {
	b := newBench(t, rule(1))
	before, conf := b.d.policy, b.conf()
	for name, text := range map[string]string{
		"a wrong key":   b.text("rules: [{name: login, match: {path: /login}, per: client, limit: 2/min, burts: 1}]"),
		"no YAML":       "version: [",
		"empty":         "",
		"needs restart": strings.Replace(b.text(rule(2)), "listen: off", `listen: "127.0.0.1:1"`, 1),
	} {
		put(t, b.config, text)
		for range 2 {
			if _, err := b.d.reload(t.Context(), false); err == nil {
				t.Errorf("%s was taken", name)
			}
		}
		if b.d.policy != before {
			t.Fatalf("%s changed the policy", name)
		}
		st := b.d.snapshot(t.Context()).Config
		if st.OK || st.Error == "" || st.Generation != conf.generation || st.Hash != conf.hash {
			t.Errorf("%s: status %+v", name, st)
		}
	}
	if n := strings.Count(b.log.String(), "config not reloaded"); n != 4 {
		t.Errorf("logged %d times, want 4", n)
	}
	b.write(t, rule(1))
	if _, err := b.d.reload(t.Context(), false); err != nil || b.conf().err != nil || b.conf().generation != conf.generation {
		t.Errorf("back to what is in force: %v, %+v", err, b.conf())
	}
}

// A change of the keys of tokens is a change of the config; a file with a fault
// changes nothing.
func TestTokenKeyFileIsWatched(t *testing.T) {
	b := newBench(t, rule(1))
	secret := filepath.Join(b.dir, "secret")
	put(t, secret, strings.Repeat("a", 32))
	b.write(t, fmt.Sprintf("http: {listen: %q, upstream: %q, identities: {user: {jwt: sub, key_file: secret}}}", freeAddress(t), upstream(t)))
	if _, err := b.d.reload(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	background(t, b.d.watchConfig)
	inForce := func() string {
		b.d.mu.Lock()
		defer b.d.mu.Unlock()
		return string(b.d.policy.cfg.HTTP.Users.Keys[0].Secret)
	}
	put(t, secret, "short")
	await.For(t, "the fault is told", func() bool { return strings.Contains(b.log.String(), "a secret of 5 bytes can be guessed") })
	if inForce() != strings.Repeat("a", 32) {
		t.Errorf("secret in force: %s", inForce())
	}
	put(t, secret, strings.Repeat("b", 32))
	await.For(t, "the second secret is in force", func() bool { return inForce() == strings.Repeat("b", 32) })
}

// A file that no longer goes with a rule from the command line is refused while
// running, and at a start sets that rule aside.
func TestFileAgainstAddedRules(t *testing.T) {
	b := newBench(t, "")
	for i := range 4 {
		text := fmt.Sprintf("{name: added%d, match: {protocol: udp}, per: source, rate: %d/s}", i, i+1)
		if _, err := b.d.addRule(t.Context(), RuleRequest{Rule: text}, Origin{From: FromCommand}); err != nil {
			t.Fatal(err)
		}
	}
	fifth := "{name: fifth, match: {protocol: udp}, per: source, rate: 9/s}"
	if _, err := b.d.addRule(t.Context(), RuleRequest{Rule: fifth}, Origin{From: FromCommand}); err == nil || len(b.d.added.Rules) != 4 {
		t.Errorf("a fifth limit on one packet: %v, %d rules", err, len(b.d.added.Rules))
	}
	b.write(t, "rules: ["+fifth+"]")
	if _, err := b.d.reload(t.Context(), true); err == nil || !strings.Contains(err.Error(), "rule added3") {
		t.Errorf("reload: %v", err)
	}
	d := b.daemon(t)
	if len(d.policy.rules) != 4 || len(d.policy.aside) != 1 || d.policy.aside[0].Name != "added3" {
		t.Errorf("started with %d rules, aside %+v", len(d.policy.rules), d.policy.aside)
	}
	if w := strings.Join(d.policy.warnings(), "\n"); !strings.Contains(w, "rule added3, added from the command line, is not in force") {
		t.Errorf("warnings: %s", w)
	}
	if _, err := d.removeRule(t.Context(), "added0", false, Origin{}); err != nil {
		t.Fatal(err)
	}
	if len(d.policy.rules) != 4 || len(d.policy.aside) != 0 {
		t.Errorf("with room again: %d rules, aside %+v", len(d.policy.rules), d.policy.aside)
	}
}
