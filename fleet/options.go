package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options are how a host finds its fleet.
type Options struct {
	Name   string // of the fleet, 1 to 40 letters, digits, dots and dashes
	Secret []byte // that all its hosts share: it keys the names of bucket keys

	Addresses []string // host:port of Redis; with Sentinel those of the sentinels; of a Cluster some of its nodes
	Sentinel  string   // name of the primary that sentinels watch; empty: none do
	Cluster   bool     // the addresses are nodes of a Redis Cluster
	User      string   // ACL user; empty: the default one
	Password  *Secret  // read anew for each connection; nil: none
	TLS       *tls.Config

	Host     string        // this host's name, as others see it
	Tick     time.Duration // how often it reports; 0: 50 ms
	Deadline time.Duration // how long a request waits for Redis at most; 0: 5 ms
	Expected int           // hosts of the fleet as far as is known before Redis has answered; 0: 1
}

// Secret is a password that may change while connections are open.
type Secret struct{ text atomic.Pointer[string] }

// Set changes it for connections that begin from now on.
func (s *Secret) Set(text string) { s.text.Store(&text) }

// get returns it, empty if there is none.
func (s *Secret) get() string {
	if s == nil {
		return ""
	}
	if t := s.text.Load(); t != nil {
		return *t
	}
	return ""
}

// DefaultTick is how often a host reports.
const DefaultTick = 50 * time.Millisecond

const (
	defaultDeadline = 5 * time.Millisecond

	// patience is how long a call may take before it counts as lost. It is much
	// longer than a request waits: cutting a slow connection only to open the
	// next makes a slow Redis slower.
	patience = 250 * time.Millisecond

	connections = 8 // that a host opens to a Redis node at most
)

// quiet keeps the library from writing to standard error: what matters is in the
// errors that it returns.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

// Client returns a client of the Redis that o names. It connects when it is
// used, gives up a call after patience, and does not try again by itself.
func (o *Options) Client() (redis.UniversalClient, error) { return o.client(patience) }

func (o *Options) client(patience time.Duration) (redis.UniversalClient, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("no address of Redis: name one in fleet.redis.addresses")
	}
	if o.Sentinel != "" && o.Cluster {
		return nil, errors.New("Redis is watched by sentinels or is a cluster, not both: leave one of fleet.redis.sentinel and fleet.redis.cluster out")
	}
	silence()
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.Addresses, MasterName: o.Sentinel, IsClusterMode: o.Cluster,
		CredentialsProvider: func() (string, string) { return o.User, o.Password.get() },
		TLSConfig:           o.TLS,

		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
		ContextTimeoutEnabled: true,
		DialerRetries:         1,
		MaxRetries:            -1, MaxRedirects: 2,
		PoolSize: connections, MaxActiveConns: connections, MinIdleConns: 1,
		ClientName: "headgate", DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}), nil
}

func (o *Options) check() error {
	switch {
	case !nameFits(o.Name):
		return fmt.Errorf("fleet name %q: use 1 to 40 letters, digits, dots and dashes", o.Name)
	case len(o.Secret) < 16:
		return fmt.Errorf("the fleet's secret has %d bytes: it needs at least 16, the same on all hosts", len(o.Secret))
	}
	return nil
}
