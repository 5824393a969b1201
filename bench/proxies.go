package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// proxyKind is a reverse proxy under test. Its config sends all to the upstream;
// what begins with /refused is far over its limit.
type proxyKind struct {
	name    string
	to      string // whose figures its own are compared with
	tool    string // that must be there
	start   func(dir, address, upstream string) *exec.Cmd
	limited bool // it refuses /refused
}

// proxyKinds are Headgate, nginx and HAProxy, each without limits and with three
// that every request is counted by and keeps below.
func proxyKinds(headgate string) []proxyKind {
	return []proxyKind{
		{"headgate", "", headgate, headgateProxy(headgate, ""), false},
		{"headgate-3-rules", "headgate", headgate, headgateProxy(headgate, headgateRules), true},
		{"nginx", "headgate", "nginx", nginxProxy("", "", ""), false},
		{"nginx-limit-req", "nginx", "nginx", nginxProxy(nginxZones, nginxLimits, nginxRefuses), true},
		{"haproxy", "headgate", "haproxy", haproxyProxy("", ""), false},
		{"haproxy-tables", "haproxy", "haproxy", haproxyProxy(haproxyTables, haproxyLimits), true},
	}
}

const headgateRules = `rules:
  - {name: all, per: client, rate: 1000000/s}
  - {name: pages, match: {path: /**}, per: client, limit: 100000000/min}
  - {name: keys, per: key, rate: 1000000/s}
  - {name: refused, match: {path: /refused}, per: client, limit: 1/h}
`

func headgateProxy(binary, rules string) func(dir, address, upstream string) *exec.Cmd {
	return func(dir, address, upstream string) *exec.Cmd {
		conf := fmt.Sprintf(`version: 1
http:
  listen: %q
  upstream: "http://%s"
  identities: {key: {header: X-Api-Key}}
%sadmin: {socket: %q, listen: off}
state: {dir: %q, pins: %q}
`, address, upstream, rules, dir+"/socket", dir+"/state", dir+"/pins")
		file := write(dir, "headgate.yaml", conf)
		return exec.Command(binary, "run", "-c", file)
	}
}

const (
	nginxZones = `limit_req_zone $binary_remote_addr zone=all:10m rate=100000r/s;
limit_req_zone $binary_remote_addr$uri zone=pages:10m rate=100000r/s;
limit_req_zone $http_x_api_key zone=keys:10m rate=100000r/s;
limit_req_zone $binary_remote_addr zone=refused:10m rate=1r/m;
limit_req_status 429;`
	nginxLimits  = "limit_req zone=all burst=100000 nodelay; limit_req zone=pages burst=100000 nodelay; limit_req zone=keys burst=100000 nodelay;"
	nginxRefuses = "location /refused { limit_req zone=refused; proxy_pass http://up; }"
)

// nginxConf is what all instances of nginx have: one process, no logs, nothing
// outside of dir.
func nginxConf(dir, http string) string {
	return fmt.Sprintf(`daemon off; master_process off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log crit;
events { worker_connections 4096; }
http {
  access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  keepalive_requests 1000000000; limit_req_log_level info;
%[2]s
}
`, dir, http)
}

func nginxProxy(zones, limits, refuses string) func(dir, address, upstream string) *exec.Cmd {
	return func(dir, address, upstream string) *exec.Cmd {
		conf := nginxConf(dir, fmt.Sprintf(`%s
upstream up { server %s; keepalive 128; keepalive_requests 1000000000; }
server { listen %s; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header X-Forwarded-For $remote_addr;
%s
location / { %s proxy_pass http://up; } }`, zones, upstream, address, refuses, limits))
		return exec.Command("nginx", "-p", dir, "-e", dir+"/error.log", "-c", write(dir, "nginx.conf", conf))
	}
}

// upstreamServer answers all with a few bytes.
func upstreamServer(dir, address string) *exec.Cmd {
	conf := nginxConf(dir, fmt.Sprintf(`server { listen %s; location / { default_type text/plain; return 200 "hello, world\n"; } }`, address))
	return exec.Command("nginx", "-p", dir, "-e", dir+"/error.log", "-c", write(dir, "nginx.conf", conf))
}

const (
	haproxyTables = `
backend all
  stick-table type ip size 1m expire 10m store http_req_rate(1s)
backend pages
  stick-table type string size 1m expire 10m store http_req_rate(60s)
backend keys
  stick-table type string size 1m expire 10m store http_req_rate(1s)
`
	haproxyLimits = `
  http-request track-sc0 src table all
  http-request track-sc1 path table pages
  http-request track-sc2 req.hdr(X-Api-Key) table keys
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000 } or { sc_http_req_rate(1) gt 100000000 } or { sc_http_req_rate(2) gt 1000000 }
  http-request deny deny_status 429 if { path /refused } { sc_http_req_rate(1) gt 1 }
`
)

func haproxyProxy(tables, limits string) func(dir, address, upstream string) *exec.Cmd {
	return func(dir, address, upstream string) *exec.Cmd {
		conf := fmt.Sprintf(`global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
%s
frontend front
  bind %s%s
  option forwardfor
  default_backend up
backend up
  server one %s
`, tables, address, limits, upstream)
		return exec.Command("haproxy", "-db", "-f", write(dir, "haproxy.cfg", conf))
	}
}

// write puts text into a file of dir and returns its path; where it cannot, the
// program that reads it says so.
func write(dir, name, text string) string {
	path := filepath.Join(dir, name)
	os.WriteFile(path, []byte(text), 0o644)
	return path
}

// server is a program that listens.
type server struct {
	cmd     *exec.Cmd
	address string
	dir     string
}

// serve starts a program on an address of its own and waits until it listens.
func serve(ctx context.Context, start func(dir, address string) *exec.Cmd) (*server, error) {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return nil, err
	}
	os.Chmod(dir, 0o755)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{address: free.Addr().String(), dir: dir}
	free.Close()
	s.cmd = start(dir, s.address)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var said strings.Builder
	s.cmd.Stdout, s.cmd.Stderr = &said, &said
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", s.address, time.Second)
		if err == nil {
			conn.Close()
			return s, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			s.stop()
			return nil, errors.New(s.cmd.Path + " does not listen: " + said.String())
		}
	}
}

func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { s.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(15 * time.Second):
		s.cmd.Process.Kill()
		<-ended
	}
	os.RemoveAll(s.dir)
}

// cpu returns how much CPU time the program and all it started have used.
func (s *server) cpu() time.Duration {
	const perTick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	parents, ticks := map[int]int{}, map[int]int64{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The name stands in brackets and may hold anything.
		at := strings.LastIndexByte(string(data), ')')
		fields := strings.Fields(string(data[at+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parents[pid], _ = strconv.Atoi(fields[1])
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		ticks[pid] = user + system
	}
	var sum int64
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if p == s.cmd.Process.Pid {
				sum += ticks[pid]
				break
			}
		}
	}
	return time.Duration(sum) * perTick
}
