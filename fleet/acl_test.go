package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/fleet/board"
	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/redisrig"
	"github.com/headgate/headgate/limit"
)

// acl is what docs/fleet.md gives the user of a fleet in Redis.
const acl = "~hg1:* resetchannels -@all +hello +auth +client|setname +evalsha +eval +time +get +set +del +type +pexpire " +
	"+hget +hgetall +hset +hdel +hkeys +hlen +zadd +zcard +zrange +zrem +zremrangebyscore +zremrangebyrank +xadd +xread"

// RC-094: a user that may run the documented commands on the fleet's keys only, behind a
// password that changes, is enough.
func TestACL(t *testing.T) {
	t.Parallel()
	s := redisrig.Start(t)
	c := s.Client()
	user := func(password string) {
		args := []any{"ACL", "SETUSER", "headgate", "reset", "on", ">" + password}
		for word := range strings.FieldsSeq(acl) {
			args = append(args, word)
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("one")
	password := new(Secret)
	password.Set("one")
	h := join(t, s.Addr, "a", func(o *Options) { o.User, o.Password = "headgate", password })
	await.For(t, "it is in", func() bool { return h.State().Up })
	for i, l := range []limit.Limit{rate(t, 1, time.Hour, 2), must(limit.NewWindow(limit.SlidingLog, 2, time.Hour)), must(limit.NewWindow(limit.SlidingCounter, 2, time.Hour))} {
		r := newRule(t, []*host{h}, fmt.Sprint("r", i), l, limit.Exact, limit.Share)
		passed := 0
		for range 5 {
			if ok, ch := r.take(h, "k"); ok && !ch.Down {
				passed++
			}
		}
		// what Redis does not answer in time is decided by this host's share
		if late := int(h.Counts.Late.Load()); passed < 2 || passed > 2+late {
			t.Errorf("%d passed, want 2, %d too late", passed, late)
		}
	}
	lines := newRule(t, []*host{h}, "lines", rate(t, 100, time.Second, 100), limit.Lines, limit.Share)
	lines.offer([]*host{h}, "k", 400, time.Second/2)
	want(t, "calls that failed", h.Counts.Failures.Load(), 0)

	b, err := NewBoard(Options{Name: "test", Secret: secret, Addresses: []string{s.Addr}, User: "headgate", Password: password}, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, posted, err := b.Post(t.Context(), 0, []board.Draft{{Notice: board.Notice{ID: "x"}}})
	if err == nil {
		err = b.Merge(t.Context(), posted)
	}
	if err == nil {
		_, err = b.Pull(t.Context(), 0, 0)
	}
	if err == nil {
		_, err = b.Hosts(t.Context(), 0)
	}
	if err == nil {
		err = b.Wait(t.Context(), 0, time.Millisecond)
	}
	if err != nil {
		t.Errorf("the board: %v", err)
	}

	user("two")
	password.Set("two")
	c.Do(t.Context(), "CLIENT", "KILL", "USER", "headgate")
	calls := h.Counts.Calls.Load()
	await.For(t, "it calls with the new password", func() bool { return h.State().Up && h.Counts.Calls.Load() >= calls+3 })
	want(t, "the log tells of an outage", strings.Contains(h.log.String(), "out of reach"), false)
}

func must(l limit.Limit, err error) limit.Limit {
	if err != nil {
		panic(err)
	}
	return l
}

// What docs/fleet.md tells to allow is what TestACL runs with.
func TestDocumentedACL(t *testing.T) {
	text, err := os.ReadFile("../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), acl) {
		t.Errorf("docs/fleet.md does not have %q", acl)
	}
}
