package daemon

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
)

// keyLines is a key file of the keys first, first+1 and so on.
func keyLines(first, n int) string {
	var b strings.Builder
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, "- {sha256: %x, owner: owner-%d}\n", sha256.Sum256(fmt.Append(nil, i)), i)
	}
	return b.String()
}

// keyBench is a daemon that watches a key file. Who has a key of it may ask
// often, who has none once a day.
type keyBench struct {
	*bench
	t       *testing.T
	address string
	file    string
}

func newKeyBench(t *testing.T, keys string) *keyBench {
	b := &keyBench{bench: newBench(t, rule(1)), t: t, address: freeAddress(t)}
	b.file = filepath.Join(b.dir, "keys.yaml")
	b.replace(keys)
	b.write(t, fmt.Sprintf("http: {listen: %q, upstream: %q, identities: {key: {header: X-Api-Key, file: keys.yaml}}}\n", b.address, upstream(t))+
		"rules: [{name: keys, match: {path: /}, per: key, limit: 1000000/day, anonymous: {limit: 1/day}}, {name: few, match: {path: /few}, per: key, limit: 2/day}]")
	try(t, second(b.d.reload(t.Context(), true)))
	background(t, b.d.http.run)
	await.For(t, "the child is up", func() bool { return b.childPID() != 0 })
	background(t, b.d.watchKeys)
	background(t, b.d.watchConfig) // which is in the same folder
	return b
}

func second[T any](_ T, err error) error { return err }

// replace puts another key file in the place of the one there is, in one step.
func (b *keyBench) replace(text string) {
	b.t.Helper()
	put(b.t, b.file+".new", text)
	if err := os.Rename(b.file+".new", b.file); err != nil {
		b.t.Fatal(err)
	}
}

func (b *keyBench) ask(path, key string) int {
	b.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+b.address+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", key)
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Do(r)
	if err != nil {
		b.t.Error(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (b *keyBench) keys() *config.Keyring {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	return b.d.policy.cfg.HTTP.Keys
}

// A key file that changes is in force while requests go on, none of which sees
// half of it: a key that all of them hold is always known. Counters, buckets and
// listeners stay.
func TestKeysChangeUnderLoad(t *testing.T) {
	t.Parallel()
	const many = 60_000 // of more than one part
	b := newKeyBench(t, keyLines(0, many))
	child := b.childPID()
	if got := []int{b.ask("/few", "1"), b.ask("/few", "1"), b.ask("/few", "1")}; got[1] != 200 || got[2] != 429 {
		t.Errorf("before the change: %v", got)
	}
	var load sync.WaitGroup
	var unknown, asked atomic.Int64
	stop := make(chan struct{})
	for range 2 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if asked.Add(1); b.ask("/", "7") != http.StatusOK {
					unknown.Add(1)
				}
			}
		})
	}
	for i := 1; i <= 3; i++ {
		b.replace(keyLines(i%2, many+i))
		await.For(t, "the keys are in force", func() bool { return b.keys().Len() == many+i })
		if code := b.ask("/", fmt.Sprint(i%2+many+i-1)); code != http.StatusOK {
			t.Errorf("change %d: the last key of the file: %d", i, code)
		}
	}
	close(stop)
	load.Wait()
	if n := unknown.Load(); n > 0 {
		t.Errorf("a key that was always there was unknown to %d of %d requests", n, asked.Load())
	}
	if code := b.ask("/few", "1"); code != http.StatusTooManyRequests {
		t.Errorf("what was spent before the change is forgotten: %d", code)
	}
	if now := b.childPID(); now != child {
		t.Errorf("the HTTP gate's process became %d, was %d", now, child)
	}
	if log := b.log.String(); strings.Count(log, "key file reloaded") != 3 || strings.Count(log, "config reloaded") != 1 {
		t.Errorf("the log: %s", b.log)
	}

	// A process that is started anew has the last of them.
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.For(t, "another child is up", func() bool { pid := b.childPID(); return pid != 0 && pid != child })
	if first, last := b.ask("/", "0"), b.ask("/", fmt.Sprint(many+3)); first != http.StatusOK || last != http.StatusOK {
		t.Errorf("after a kill: a key that went %d (once, without a key), the last %d", first, last)
	}
	if code := b.ask("/", "0"); code != http.StatusTooManyRequests {
		t.Errorf("a key that went is known after a kill: %d", code)
	}
}

// A key file with a fault leaves the keys as they are, and status says which line
// and what to do.
func TestBrokenKeyFileChangesNothing(t *testing.T) {
	t.Parallel()
	b := newKeyBench(t, keyLines(0, 3))
	large := keyLines(0, 60_000)
	for _, tc := range []struct{ text, want string }{
		{keyLines(0, 1) + "- {sha256: s3cr3t, owner: acme}\n", "keys.yaml:2:12: sha256 is not 64 hex digits"},
		{large + keyLines(0, 1), "keys.yaml:60001:1: the key is there twice, first in line 1: remove one"},
		{large[:len(large)-20], "keys.yaml:60000:1: a key file of more than 4 MiB has a key a line"},
	} {
		b.replace(tc.text)
		await.For(t, tc.want, func() bool { return strings.Contains(b.status().Error, tc.want) })
		if st := b.status(); st.OK || strings.Contains(st.Error, "s3cr3t") {
			t.Errorf("status %+v", st)
		}
		if a, c := b.ask("/", "0"), b.ask("/", "2"); a != http.StatusOK || c != http.StatusOK {
			t.Errorf("with a broken file, two keys of the old: %d %d", a, c)
		}
	}
	b.replace(keyLines(2, 2))
	await.For(t, "the mended file is in force", func() bool { return b.status().OK })
	if c := b.ask("/", "3"); c != http.StatusOK {
		t.Errorf("a key of the mended file: %d", c)
	}
}

// One that is gone is one with a fault; and one that a start of the daemon would
// refuse does not keep the rest of the config from being reloaded later.
func TestConfigThatFailedForItsKeys(t *testing.T) {
	t.Parallel()
	b := newKeyBench(t, keyLines(0, 3))
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	await.For(t, "the file is missed", func() bool { return strings.Contains(b.status().Error, "keys.yaml: no such file") })
	if err := second(b.d.reload(t.Context(), true)); err == nil || !strings.Contains(err.Error(), "read key file") {
		t.Errorf("a reload without the file: %v", err)
	}
	b.replace(keyLines(0, 4))
	await.For(t, "config and keys are good again", func() bool { return b.status().OK && b.keys().Len() == 4 })
}

func (b *keyBench) status() ConfigStatus {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	return b.d.configStatus()
}

// Parts that do not fit together make no keys.
func TestKeyParts(t *testing.T) {
	t.Parallel()
	block := config.NewKeyring([]config.Key{{SHA256: [32]byte{1}, Owner: "a"}}).Block()
	half := len(block) / 2
	var in keyIntake
	add := func(at int, part []byte) error { return second(in.add(&keyPart{Size: len(block), At: at, Part: part})) }
	for _, fault := range []error{add(half, block[half:]), add(0, append(block[:len(block):len(block)], 0)), add(0, make([]byte, len(block)))} {
		if fault == nil {
			t.Error("it was taken")
		}
	}
	if in.take() != nil {
		t.Error("there are keys")
	}
	try(t, add(0, block[:half]))
	if err := add(half+1, block[half+1:]); err == nil {
		t.Error("a gap was taken")
	}
	try(t, add(half, block[half:]))
	if k := in.take(); k.Len() != 1 || in.take() != nil {
		t.Errorf("%d keys, and once more", k.Len())
	}
}
