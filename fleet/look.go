package fleet

import (
	"context"
	"strings"
	"time"
)

// Seen is what a look at the fleet shows.
type Seen struct {
	Hosts  []string      // alive
	Others []string      // of them, those with another secret: they share nothing with who has o's
	Behind time.Duration // how far this host's wall clock is behind Redis', below 0: ahead
}

// Look asks Redis who is in the fleet, without joining it.
func Look(ctx context.Context, o Options) (Seen, error) {
	if err := o.check(); err != nil {
		return Seen{}, err
	}
	c, err := o.Client()
	if err != nil {
		return Seen{}, err
	}
	defer c.Close()
	n := newNames(&o)
	began := time.Now()
	reply, err := hosts.Run(ctx, c, []string{n.hosts()}, "looks", alive.Microseconds(), 0).Slice()
	if err != nil {
		return Seen{}, err
	}
	r := numbers{words: reply}
	trip := time.Since(began)
	s := Seen{Behind: time.UnixMicro(r.int()).Sub(began.Add(trip / 2))}
	s.Hosts, s.Others = r.hosts(o.Secret)
	return s, r.err
}

// hosts reads a list of hosts, and which of them have another secret.
func (n *numbers) hosts(secret []byte) (all, others []string) {
	for len(n.words) > 0 {
		id, print, _ := strings.Cut(n.next(), " ")
		name, _, _ := strings.Cut(id, "/")
		if all = append(all, name); print != Fingerprint(secret) {
			others = append(others, name)
		}
	}
	return all, others
}
