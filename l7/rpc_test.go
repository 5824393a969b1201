package l7

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/config"
)

// refusedCall drains a rule of 1 in 6 s and returns the refusal of a call.
func refusedCall(t *testing.T, method, target string, headers ...string) reply {
	t.Helper()
	c := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "calls", "client", "1/6s")}}).client("127.0.0.2")
	want(t, "first", c.do(method, target, headers...).status, 200)
	got := c.do(method, target, headers...)
	want(t, "Cache-Control", got.header.Get("Cache-Control"), "no-store")
	want(t, "RateLimit", unnamed(got.header), `"calls";r=0;t=6`)
	if got.header.Get("Request-Id") == "" {
		t.Error("no request id")
	}
	return got
}

const callDetail = "over calls: try again in 6 s"

// retryDelay reads a google.rpc.RetryInfo.
func retryDelay(t testing.TB, b []byte) time.Duration {
	t.Helper()
	number, kind, n := protowire.ConsumeTag(b)
	if number != 1 || kind != protowire.BytesType {
		t.Fatalf("RetryInfo %x", b)
	}
	inner, m := protowire.ConsumeBytes(b[n:])
	var d durationpb.Duration
	if err := proto.Unmarshal(inner, &d); err != nil || n+m != len(b) || d.CheckValid() != nil {
		t.Fatalf("RetryInfo %x: %v", b, err)
	}
	return d.AsDuration()
}

// readStatus reads a google.rpc.Status: code, message, and the delay in the
// RetryInfo among its details.
func readStatus(t testing.TB, b []byte) (code uint64, message string, delay time.Duration) {
	t.Helper()
	for len(b) > 0 {
		number, _, n := protowire.ConsumeTag(b)
		b = b[n:]
		switch number {
		case 1:
			code, n = protowire.ConsumeVarint(b)
		case 2:
			message, n = protowire.ConsumeString(b)
		case 3:
			var inner []byte
			inner, n = protowire.ConsumeBytes(b)
			var any anypb.Any
			if err := proto.Unmarshal(inner, &any); err != nil || any.TypeUrl != "type.googleapis.com/google.rpc.RetryInfo" {
				t.Fatalf("detail %q: %v", any.TypeUrl, err)
			}
			delay = retryDelay(t, any.Value)
		}
		if n < 0 {
			t.Fatalf("status: %v", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return code, message, delay
}

// Over HTTP/2, as gRPC speaks: all is in one header frame that ends the stream.
func TestGRPCRefusal(t *testing.T) {
	r := newRig(t, Policy{Rules: []config.Rule{ruleOf(t, "calls", "client", "1/6s")}})
	speaks := new(http.Protocols)
	speaks.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: speaks}
	defer tr.CloseIdleConnections()
	call := func() *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr+"/shop.Cart/Add", bytes.NewReader(envelope(0, []byte("message"))))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc+proto")
		req.Header.Set("Te", "trailers")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	call().Body.Close()
	resp := call()
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || len(body) > 0 || len(resp.Trailer) > 0 {
		t.Errorf("body %q, trailer %v, %v", body, resp.Trailer, err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/grpc+proto", "Grpc-Status": "8", "Grpc-Message": callDetail, "Grpc-Retry-Pushback-Ms": "6000",
	} {
		want(t, name, resp.Header.Get(name), value)
	}
	want(t, "status", resp.StatusCode, 200)
	want(t, "protocol", resp.ProtoMajor, 2)
	raw, err := base64.RawStdEncoding.DecodeString(resp.Header.Get("Grpc-Status-Details-Bin"))
	if err != nil {
		t.Fatal(err)
	}
	code, message, delay := readStatus(t, raw)
	if code != 8 || message != callDetail || delay != 6*time.Second {
		t.Errorf("%d, %q, %v", code, message, delay)
	}
	want(t, "counters", r.gate.Counters()["calls"], Counters{Passed: 1, Refused: 1})
}

func TestGRPCWebRefusal(t *testing.T) {
	for kind, text := range map[string]bool{"application/grpc-web": false, "application/grpc-web+proto": false, "application/grpc-web-text": true, "application/grpc-web-text+proto": true} {
		got := refusedCall(t, "POST", "/shop.Cart/Add", "Content-Type: "+kind, "Content-Length: 0")
		want(t, kind, got.status, 200)
		want(t, kind, got.header.Get("Content-Type"), kind)
		frame := []byte(got.body)
		if text {
			var err error
			if frame, err = base64.StdEncoding.DecodeString(got.body); err != nil {
				t.Fatal(err)
			}
		}
		flags, fields := opened(t, frame)
		want(t, "flags", flags, 0x80)
		for _, line := range []string{"grpc-status: 8\r\n", "grpc-message: " + callDetail + "\r\n", "grpc-retry-pushback-ms: 6000\r\n", "grpc-status-details-bin: "} {
			if !strings.Contains(string(fields), line) {
				t.Errorf("%s: no %q in %q", kind, line, fields)
			}
		}
	}
}

// opened takes one message out of its envelope, which must hold nothing else.
func opened(t testing.TB, b []byte) (flags byte, message []byte) {
	t.Helper()
	if len(b) < 5 || int(binary.BigEndian.Uint32(b[1:])) != len(b)-5 {
		t.Fatalf("envelope %q", b)
	}
	return b[0], b[5:]
}

func TestConnectRefusal(t *testing.T) {
	check := func(what string, e connectError) {
		t.Helper()
		want(t, what, e.Code, "resource_exhausted")
		want(t, what, e.Message, callDetail)
		if len(e.Details) != 1 || e.Details[0].Type != "google.rpc.RetryInfo" {
			t.Fatalf("%s: details %v", what, e.Details)
		}
		raw, err := base64.RawStdEncoding.DecodeString(e.Details[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		want(t, what, retryDelay(t, raw), 6*time.Second)
	}
	for _, k := range [][]string{
		{"POST", "/shop.Cart/Add", "Content-Type: application/json", "Connect-Protocol-Version: 1", "Content-Length: 0"},
		{"POST", "/shop.Cart/Add", "Content-Type: application/proto", "Content-Length: 0"},
		{"GET", "/shop.Cart/Show?connect=v1&encoding=json&message=%7B%7D"},
	} {
		got := refusedCall(t, k[0], k[1], k[2:]...)
		var e connectError
		if err := json.Unmarshal([]byte(got.body), &e); err != nil {
			t.Fatal(err)
		}
		want(t, k[1], got.status, 429)
		want(t, k[1], got.header.Get("Content-Type"), "application/json")
		want(t, k[1], got.header.Get("Retry-After"), "6")
		check(k[1], e)
	}
	got := refusedCall(t, "POST", "/shop.Cart/Watch", "Content-Type: application/connect+json", "Content-Length: 0")
	want(t, "stream", got.status, 200)
	want(t, "stream", got.header.Get("Content-Type"), "application/connect+json")
	flags, message := opened(t, []byte(got.body))
	want(t, "flags", flags, 0x02)
	var end struct{ Error connectError }
	if err := json.Unmarshal(message, &end); err != nil {
		t.Fatal(err)
	}
	check("stream", end.Error)
}

// What only looks like a remote call hears a plain 429.
func TestNoCall(t *testing.T) {
	for _, kind := range []string{"application/json", "application/grpcx", "text/plain; a=application/grpc", "application/connection", ";"} {
		got := refusedCall(t, "POST", "/", "Content-Type: "+kind, "Content-Length: 0")
		want(t, kind, got.status, 429)
		want(t, kind, got.header.Get("Content-Type"), "application/problem+json")
	}
}
