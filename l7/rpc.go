package l7

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// protocol is how a caller of a remote procedure wants to hear that it is
// refused. Told an HTTP 429, clients of gRPC see "unavailable" and try again at
// once.
type protocol int

const (
	plainHTTP     protocol = iota
	grpc                   // PROTOCOL-HTTP2.md of grpc
	grpcWeb                // PROTOCOL-WEB.md of grpc
	grpcWebText            // the same in base64
	connectUnary           // connectrpc.com/docs/protocol
	connectStream          // the same, calls that stream
)

// protocolOf tells the protocol from the content type, as servers do.
func protocolOf(r *http.Request) protocol {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	base, _, _ := strings.Cut(kind, "+")
	switch {
	case base == "application/grpc":
		return grpc
	case base == "application/grpc-web":
		return grpcWeb
	case base == "application/grpc-web-text":
		return grpcWebText
	case base == "application/connect":
		return connectStream
	case kind == "application/proto", r.Header.Get("Connect-Protocol-Version") != "":
		return connectUnary
	case r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "connect=v1"):
		return connectUnary
	}
	return plainHTTP
}

// resourceExhausted is status 8 of gRPC; Connect calls it by name.
const resourceExhausted = "8"

// refuseCall answers a refusal in the words of a protocol other than plainHTTP.
// detail is printable ASCII without %, so gRPC needs nothing encoded; wait is 0
// where waiting does not help.
func refuseCall(w http.ResponseWriter, r *http.Request, how protocol, detail string, wait time.Duration) {
	h := w.Header()
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	h.Set("Content-Type", kind)
	switch how {
	case grpc: // "Trailers-Only": all is in the header, and there is no body
		for _, f := range callStatus(detail, wait) {
			h.Set(f[0], f[1])
		}
		w.WriteHeader(http.StatusOK)
	case grpcWeb, grpcWebText:
		frame := webTrailers(callStatus(detail, wait))
		if how == grpcWebText {
			frame = base64.StdEncoding.AppendEncode(nil, frame)
		}
		send(w, http.StatusOK, frame)
	case connectUnary:
		h.Set("Content-Type", "application/json")
		send(w, http.StatusTooManyRequests, marshal(newConnectError(detail, wait)))
	case connectStream:
		message := marshal(map[string]connectError{"error": newConnectError(detail, wait)})
		const endOfStream = 0x02
		send(w, http.StatusOK, envelope(endOfStream, message))
	}
}

// callStatus are the fields in which gRPC tells how a call ended.
func callStatus(detail string, wait time.Duration) [][2]string {
	fields := [][2]string{{"Grpc-Status", resourceExhausted}, {"Grpc-Message", detail}}
	if wait == 0 {
		return fields
	}
	// Pushback takes the place of the client's own back-off (gRFC A6).
	pushback := (wait + time.Millisecond - 1) / time.Millisecond
	return append(fields,
		[2]string{"Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(statusProto(detail, wait))},
		[2]string{"Grpc-Retry-Pushback-Ms", strconv.FormatInt(int64(pushback), 10)},
	)
}

const retryInfoType = "google.rpc.RetryInfo"

// statusProto is a google.rpc.Status with a RetryInfo.
func statusProto(detail string, wait time.Duration) []byte {
	any := protowire.AppendTag(nil, 1, protowire.BytesType)
	any = protowire.AppendString(any, "type.googleapis.com/"+retryInfoType)
	any = protowire.AppendTag(any, 2, protowire.BytesType)
	any = protowire.AppendBytes(any, retryInfo(wait))
	b := protowire.AppendTag(nil, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, 8)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendString(b, detail)
	b = protowire.AppendTag(b, 3, protowire.BytesType)
	return protowire.AppendBytes(b, any)
}

// retryInfo is a google.rpc.RetryInfo: field 1 is a google.protobuf.Duration of
// seconds (1) and nanoseconds (2).
func retryInfo(wait time.Duration) []byte {
	d := protowire.AppendTag(nil, 1, protowire.VarintType)
	d = protowire.AppendVarint(d, uint64(wait/time.Second))
	if nanos := wait % time.Second; nanos > 0 {
		d = protowire.AppendTag(d, 2, protowire.VarintType)
		d = protowire.AppendVarint(d, uint64(nanos))
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), d)
}

// webTrailers puts fields, in lower case, into the frame that ends a grpc-web
// answer.
func webTrailers(fields [][2]string) []byte {
	var b []byte
	for _, f := range fields {
		b = append(append(append(append(b, strings.ToLower(f[0])...), ": "...), f[1]...), "\r\n"...)
	}
	const trailers = 0x80
	return envelope(trailers, b)
}

// envelope is a message of gRPC and of Connect: flags, length, bytes.
func envelope(flags byte, message []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))
	return append(b, message...)
}

// connectError is an error in Connect's JSON.
type connectError struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details []connectDetail `json:"details,omitempty"`
}

type connectDetail struct {
	Type  string `json:"type"`
	Value string `json:"value"` // base64 without padding
}

func newConnectError(detail string, wait time.Duration) connectError {
	e := connectError{Code: "resource_exhausted", Message: detail}
	if wait > 0 {
		e.Details = []connectDetail{{retryInfoType, base64.RawStdEncoding.EncodeToString(retryInfo(wait))}}
	}
	return e
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return b
}

// send writes a whole answer.
func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client is gone: nobody to tell
}
