// Package redisrig starts real Redis servers for tests, each a process of its own
// on a loopback port of its own, and breaks them.
package redisrig

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server.
type Server struct {
	Addr string // host:port

	t     testing.TB
	dir   string
	first []string // before all other arguments
	args  []string
	tls   bool

	mu  sync.Mutex
	cmd *exec.Cmd
	log bytes.Buffer
}

// Start starts a server with more arguments of redis-server, such as
// "--maxmemory", "2mb". It ends with the test. Without redis-server the test is
// skipped.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skipf("needs redis-server: %v (deploy/packages test)", err)
	}
	s := &Server{Addr: freeAddress(t), t: t, dir: t.TempDir(), args: args}
	t.Cleanup(s.Kill)
	s.Again()
	return s
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// freeAddress returns one that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Again starts the server on its port, empty, after it was killed.
func (s *Server) Again() {
	s.t.Helper()
	port := portOf(s.Addr)
	if s.tls {
		port = "0" // no other door
	}
	args := append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir}, s.args...)
	cmd := exec.Command("redis-server", append(s.first, args...)...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.Addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("redis-server does not listen: %v\n%s", err, &s.log)
		}
	}
}

// Kill kills the server. All that it held is lost.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// Pause stops the server without ending it: connections stay, nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Client returns a client of the server, for the test's own use.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, DisableIdentity: true})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Info returns a number out of INFO, such as "total_commands_processed".
func (s *Server) Info(name string) (n int64) {
	s.t.Helper()
	text, err := s.Client().Info(s.t.Context()).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines([]byte(text)) {
		if _, err := fmt.Sscanf(string(line), name+":%d", &n); err == nil {
			return n
		}
	}
	s.t.Fatalf("INFO has no %s", name)
	return 0
}
