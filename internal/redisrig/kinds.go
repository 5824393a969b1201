package redisrig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/await"
	"github.com/headgate/headgate/internal/selfsigned"
)

// Cluster starts a Redis Cluster of three primaries and returns their addresses
// when all slots are served.
func Cluster(t testing.TB) (addresses []string) {
	t.Helper()
	var nodes []*Server
	for range 3 {
		s := Start(t, "--cluster-enabled", "yes", "--cluster-port", portOf(freeAddress(t)))
		nodes, addresses = append(nodes, s), append(addresses, s.Addr)
	}
	args := append(append([]string{"--cluster", "create"}, addresses...), "--cluster-yes")
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("make a cluster: %v\n%s", err, out)
	}
	for _, n := range nodes {
		c := n.Client()
		await.For(t, "the cluster is up", func() bool {
			info, _ := c.ClusterInfo(t.Context()).Result()
			return strings.Contains(info, "cluster_state:ok")
		})
	}
	return addresses
}

// Watched starts a primary with a replica, and a sentinel that watches them
// under a name. It fails over a second after the primary falls silent.
func Watched(t testing.TB, name string) (primary *Server, sentinel string) {
	t.Helper()
	primary = Start(t)
	replica := Start(t, "--replicaof", "127.0.0.1", portOf(primary.Addr))
	c := replica.Client()
	await.For(t, "the replica is in step", func() bool {
		info, _ := c.Info(t.Context(), "replication").Result()
		return strings.Contains(info, "master_link_status:up")
	})
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor " + name + " 127.0.0.1 " + portOf(primary.Addr) + " 1\n" +
		"sentinel down-after-milliseconds " + name + " 1000\nsentinel failover-timeout " + name + " 2000\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	watch := &Server{Addr: freeAddress(t), t: t, dir: filepath.Dir(conf), first: []string{conf, "--sentinel"}}
	t.Cleanup(watch.Kill)
	watch.Again()
	w := watch.Client()
	await.For(t, "the sentinel knows the replica", func() bool {
		all, err := w.Do(t.Context(), "SENTINEL", "REPLICAS", name).Slice()
		return err == nil && len(all) == 1
	})
	return primary, watch.Addr
}

// TLS starts a server that speaks TLS only, and returns the certificate, for
// the name "redis", to trust.
func TLS(t testing.TB) (s *Server, ca []byte) {
	t.Helper()
	cert, key := selfsigned.Pair(t, time.Now().Add(time.Hour), "redis")
	dir := t.TempDir()
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	s = &Server{Addr: address, t: t, dir: dir, tls: true, args: []string{
		"--tls-port", portOf(address), "--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem", "--tls-ca-cert-file", "cert.pem", "--tls-auth-clients", "no",
	}}
	t.Cleanup(s.Kill)
	s.Again()
	return s, cert
}
