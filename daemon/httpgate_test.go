package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/l7"
	"github.com/headgate/headgate/limit"
)

// get makes one request on a connection of its own.
func get(t *testing.T, url string) (int, error) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	c := http.Client{Transport: tr, Timeout: patience}
	resp, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

// childPID is the HTTP gate's process, or 0.
func (b *bench) childPID() int {
	b.d.http.mu.Lock()
	defer b.d.http.mu.Unlock()
	if b.d.http.child == nil {
		return 0
	}
	return b.d.http.child.proc.pid
}

func processStatus(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		out[name] = strings.TrimSpace(value)
	}
	return out
}

// The HTTP gate's process has another user, no capability and no way to one,
// no environment, and no file but its link, its log and its sockets.
func TestChildHasNoPrivilege(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root has privilege to give up")
	}
	// what started the daemon may have left files open to whatever it starts
	left, err := unix.Open(filepath.Join(t.TempDir(), "left"), unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(left)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q, user: nobody}", freeAddress(t), upstream(t)))
	pid := b.childPID()
	st := processStatus(t, pid)
	none := strings.Repeat("0", 16)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if st[set] != none {
			t.Errorf("%s is %s", set, st[set])
		}
	}
	if st["NoNewPrivs"] != "1" {
		t.Errorf("NoNewPrivs is %q", st["NoNewPrivs"])
	}
	acc, _, err := lookupAccount("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]uint32{"Uid": acc.cred.Uid, "Gid": acc.cred.Gid} {
		for _, id := range strings.Fields(st[set]) {
			if id != fmt.Sprint(want) {
				t.Errorf("%s is %s, want %d", set, st[set], want)
			}
		}
	}
	if st["Groups"] != "" {
		t.Errorf("groups %q", st["Groups"])
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || len(environ) != 0 {
		t.Errorf("environment %q, %v", environ, err)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		// The Go runtime reads its CPU limit from the cgroup.
		if strings.HasPrefix(to, "/sys/fs/cgroup/") || to == "/dev/null" {
			continue
		}
		if strings.HasPrefix(to, "/") || strings.Contains(to, "bpf") {
			t.Errorf("file %s is %s", fd.Name(), to)
		}
	}
	if own := processStatus(t, os.Getpid()); own["CapEff"] == none {
		t.Error("the daemon lost its own capabilities")
	}
}

func TestRootIsNoUserForTheHTTPGate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, _, err := lookupAccount("root"); err == nil {
		t.Error("root was taken")
	}
	acc, warning, err := lookupAccount("no-such-user")
	if err != nil || acc.name != "nobody" || !strings.Contains(warning, "useradd") {
		t.Errorf("%v, %q, %v", acc, warning, err)
	}
}

// kill -9 of the HTTP gate's process under load: no connection is refused,
// requests in flight are all that is lost, and no counter falls.
func TestKilledChildIsBack(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}\nrules: [{name: all, match: {path: /all}, per: client, rate: 1000000/s}]", address, upstream(t)))
	background(t, b.d.http.run)
	var refused, lost, served atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	const clients = 4
	for range clients {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				code, err := get(t, "http://"+address+"/all")
				switch {
				case errors.Is(err, syscall.ECONNREFUSED):
					refused.Add(1)
				case err == nil && code == http.StatusOK:
					served.Add(1)
				default:
					lost.Add(1)
				}
			}
		})
	}
	const kills = 10
	passed := uint64(0)
	for range kills {
		before := served.Load()
		await.For(t, "requests are served", func() bool { return served.Load() > before+20 })
		old := b.childPID()
		st := b.d.snapshot(t.Context())
		if n := st.Rules[0].Requests.Passed; n < passed {
			t.Errorf("passed fell from %d to %d", passed, n)
		} else {
			passed = n
		}
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await.For(t, "another child is up", func() bool { pid := b.childPID(); return pid != 0 && pid != old })
	}
	close(stop)
	load.Wait()
	if n := refused.Load(); n != 0 {
		t.Errorf("%d connections were refused", n)
	}
	if n := lost.Load(); n > kills*clients {
		t.Errorf("%d requests were lost, at most %d were in flight", n, kills*clients)
	}
	st := b.d.snapshot(t.Context())
	if st.HTTP.Restarts != kills || !st.HTTP.Up || !st.HTTP.Fresh || !st.Ready {
		t.Errorf("status %+v", st.HTTP)
	}
	if n := st.Rules[0].Requests.Passed; n < passed || n == 0 {
		t.Errorf("passed is %d after %d", n, passed)
	}
	if !strings.Contains(st.HTTP.Error, "killed") {
		t.Errorf("how it ended: %q", st.HTTP.Error)
	}
}

// While no child is there, connections wait in the queue of the socket.
func TestConnectionsWaitForTheChild(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}", address, upstream(t)))
	child := b.d.http.child
	child.end()
	<-child.exited
	b.d.http.bury(child)
	if st := b.d.snapshot(t.Context()); st.Ready || len(st.Faults) != 1 || !strings.Contains(st.Faults[0], "HTTP gate is down") {
		t.Errorf("without a child: ready %v, %q", st.Ready, st.Faults)
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.0\r\nHost: x\r\n\r\n")
	background(t, b.d.http.run)
	c.SetReadDeadline(soon())
	buf := make([]byte, 15)
	if _, err := c.Read(buf); err != nil || !strings.HasPrefix(string(buf), "HTTP/1.") {
		t.Errorf("read %q, %v", buf, err)
	}
}

// Listeners come and go with a reload; the child stays, and so do its sockets.
func TestListenersFollowTheConfig(t *testing.T) {
	one, two, up := freeAddress(t), freeAddress(t), upstream(t)
	conf := func(addresses ...string) string {
		text := "http:\n  listeners:\n"
		for _, a := range addresses {
			text += fmt.Sprintf("    - {address: %q, door: proxy, upstream: %q}\n", a, up)
		}
		return text
	}
	b := newBench(t, conf(one))
	background(t, b.d.http.run)
	pid := b.childPID()
	for i, step := range []struct{ open, closed []string }{
		{[]string{one, two}, nil},
		{[]string{two}, []string{one}},
		{[]string{one, two}, nil},
	} {
		b.write(t, conf(step.open...))
		if _, err := b.d.reload(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		for _, a := range step.open {
			if code, err := get(t, "http://"+a+"/"); err != nil || code != http.StatusOK {
				t.Errorf("step %d: %s: %d, %v", i, a, code, err)
			}
		}
		for _, a := range step.closed {
			if _, err := get(t, "http://"+a+"/"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("step %d: %s, which is closed: %v", i, a, err)
			}
		}
	}
	if now := b.childPID(); now != pid {
		t.Errorf("child %d became %d", pid, now)
	}

	// Another upstream for the same address reaches it.
	other := upstream(t)
	b.write(t, strings.ReplaceAll(conf(one), up, other))
	if _, err := b.d.reload(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := b.d.snapshot(t.Context()).HTTP.Listeners[0].Upstream; got != other {
		t.Errorf("upstream %s, want %s", got, other)
	}

	// Off, and on again.
	b.write(t, "")
	if _, err := b.d.reload(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	await.For(t, "the child is gone", func() bool { return b.childPID() == 0 })
	b.write(t, conf(one))
	if _, err := b.d.reload(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if code, err := get(t, "http://"+one+"/"); err != nil || code != http.StatusOK {
		t.Errorf("on again: %d, %v", code, err)
	}
	if n := b.d.snapshot(t.Context()).HTTP.Restarts; n != 0 {
		t.Errorf("%d restarts, want none", n)
	}
}

// A port that is taken refuses the reload, and all stays as it was.
func TestTakenPortChangesNothing(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}", address, upstream(t)))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	before := b.d.policy
	b.write(t, fmt.Sprintf("http: {listen: %q, upstream: %q}", taken.Addr(), upstream(t)))
	if _, err := b.d.reload(t.Context(), true); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v", err)
	}
	if b.d.policy != before || b.d.conf.err == nil {
		t.Error("the policy changed, or status does not tell")
	}
	if code, err := get(t, "http://"+address+"/"); err != nil || code != http.StatusOK {
		t.Errorf("%d, %v", code, err)
	}
}

// The child ends by itself when the daemon is gone.
func TestChildEndsWithTheDaemon(t *testing.T) {
	address := freeAddress(t)
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}", address, upstream(t)))
	child := b.d.http.child
	closeSockets(b.d.http.socks)
	b.d.http.socks = nil
	// The kernel closes a dead process's end in just this way.
	child.down.conn.CloseWrite()
	select {
	case <-child.exited:
	case <-time.After(patience):
		t.Fatal("it lives on")
	}
	if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("its port: %v", err)
	}
}

func TestBackoff(t *testing.T) {
	var got []time.Duration
	for deaths := 1; deaths <= 12; deaths++ {
		got = append(got, backoff(deaths))
	}
	ms := time.Millisecond
	want := []time.Duration{0, 0, 0, 50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, time.Second, time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Counters only grow, over deaths and answers that overtake each other, and
// hold nothing that the daemon does not know.
func TestHTTPCountsOnlyGrow(t *testing.T) {
	rules := []config.Rule{{Name: "a"}, {Name: "b"}}
	c := newHTTPCounts()
	tell := func(passed, refused uint64) {
		c.take(answer{
			Rules:   map[string]l7.Counters{"a": {Passed: passed, Refused: refused}, "invented": {Passed: 9}},
			Answers: map[int]uint64{200: passed, 12345: 1},
			Ended:   map[l7.EndReason]uint64{l7.EndHeld: refused, "invented": 9}, Faults: refused,
			Buckets: limit.Stats{Keys: 7, Evicted: passed, Overflowed: refused},
			Held:    map[string]limit.Held{"a": {Keys: passed}, "invented": {Keys: 9}},
		}, rules)
	}
	tell(10, 1)
	tell(8, 2)
	if c.bank(); len(c.held) != 0 {
		t.Errorf("the dead hold %v", c.held)
	}
	tell(5, 0)
	if len(c.held) != 1 || c.held["a"].Keys != 5 {
		t.Errorf("held: %v", c.held)
	}
	got, codes := c.total()
	if want := (l7.Counters{Passed: 15, Refused: 2}); got["a"] != want {
		t.Errorf("a: %+v, want %+v", got["a"], want)
	}
	if len(got) != 1 || len(codes) != 1 || codes[200] != 15 {
		t.Errorf("%v, %v", got, codes)
	}
	if n, f := c.endedByName(), c.faults(); len(n) != 1 || n["held"] != 2 || f != 2 {
		t.Errorf("%v connections reset and %d faults, want 2 each", n, f)
	}
	if b := c.buckets(); b != (limit.Stats{Keys: 7, Evicted: 15, Overflowed: 2}) {
		t.Errorf("buckets %+v, want those of the child that runs, and evictions and overflows of both", b)
	}
	c.prune(rules[1:])
	if got, _ := c.total(); len(got) != 0 {
		t.Errorf("after its rule went: %v", got)
	}
}

func TestAskHasADeadline(t *testing.T) {
	b := newBench(t, fmt.Sprintf("http: {listen: %q, upstream: %q}", freeAddress(t), upstream(t)))
	pid := b.childPID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	await.For(t, "it stands still", func() bool { return strings.HasPrefix(processStatus(t, pid)["State"], "T") })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if b.d.http.count(ctx) {
		t.Error("a process that stands still answered")
	}
}
