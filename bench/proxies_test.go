package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Each contender relays to the upstream, those with limits refuse what is over
// them, and what they cost is seen.
func TestProxyContenders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: Headgate starts its HTTP gate as another user")
	}
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skipf("the upstream is nginx: %v (deploy/packages bench)", err)
	}
	t.Chdir("..")
	binary, clean, err := buildHeadgate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clean)
	up, err := serve(t.Context(), upstreamServer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.stop)
	for _, k := range proxyKinds(binary) {
		t.Run(k.name, func(t *testing.T) {
			if _, err := exec.LookPath(k.tool); err != nil {
				t.Skipf("needs %s: %v (deploy/packages bench)", k.tool, err)
			}
			s, err := serve(t.Context(), func(dir, address string) *exec.Cmd { return k.start(dir, address, up.address) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.stop)
			client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
			t.Cleanup(client.CloseIdleConnections)
			status := func(path string) int {
				resp, err := client.Get("http://" + s.address + path)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if body, _ := io.ReadAll(resp.Body); resp.StatusCode == 200 && string(body) != "hello, world\n" {
					t.Errorf("%s: %q", path, body)
				}
				return resp.StatusCode
			}
			if got := status("/"); got != 200 {
				t.Errorf("/ is answered %d", got)
			}
			status("/refused")
			status("/refused")
			if got := status("/refused"); (got == 429) != k.limited {
				t.Errorf("/refused is answered %d", got)
			}
			for end := time.Now().Add(10 * time.Second); s.cpu() == 0; status("/") {
				if time.Now().After(end) {
					t.Fatal("it seems to cost nothing")
				}
			}
		})
	}
}
