package main

import "testing"

func TestParseBench(t *testing.T) {
	got, err := parseBench(`goos: linux
BenchmarkDecide/headgate/1-2             810544         139.1 ns/op         0 B/op
BenchmarkDecide/headgate/1-2             810544         120 ns/op         0 B/op
BenchmarkDecide/x-time-rate/1-2         1000000         240 ns/op
PASS
`)
	if err != nil {
		t.Fatal(err)
	}
	got[0].To = got[1].Name
	got = withRatios(got)
	if len(got) != 2 || got[0].Name != "http/Decide/headgate/1" || got[0].Value != 120 || got[0].Ratio != 0.5 {
		t.Errorf("%+v", got)
	}
	if _, err := parseBench("PASS"); err == nil {
		t.Error("nothing was measured, and no error")
	}
}
