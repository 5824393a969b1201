package l7

import (
	"io"
	"net/http"
	"time"
)

const (
	// drainTime is how long is waited for the rest of a body that nobody wants.
	drainTime = 5 * time.Second
	// drainBytes is how much of such a body is read. A client that sends it all
	// before it looks for an answer would otherwise meet a reset and never see
	// why it was refused.
	drainBytes = 1 << 20
	// smallBody is what the server reads by itself so that the connection can be
	// used again.
	smallBody = 256 << 10
)

// isLarge reports whether r has a body on HTTP/1 of which the rest is not worth
// reading for the sake of the connection.
func isLarge(r *http.Request) bool {
	return r.ProtoMajor == 1 && (r.ContentLength > smallBody || r.ContentLength < 0)
}

// linger lets go of a request that was answered although nobody read its body.
// The answer is sent at once; then, on HTTP/1, some of the body is read and
// thrown away. On HTTP/2 the stream is reset when the handler returns; there
// the answer may have to wait for room at the client, but not for ever.
func (v *visit) linger(r *http.Request) {
	conn := http.NewResponseController(v.ResponseWriter)
	switch {
	case r.ProtoMajor > 1:
		conn.SetWriteDeadline(time.Now().Add(v.gate.deafTime))
	case r.Body == nil || r.Body == http.NoBody:
	case r.Header.Get("Expect") != "":
		// To read is to ask for the body, and the server does not have to wait for
		// it either: the connection ends.
		conn.SetReadDeadline(time.Now())
	default:
		// Read here, for the server would lose a connection on which it met the end
		// of a body after a handler that was allowed to answer before it.
		conn.SetReadDeadline(time.Now().Add(v.gate.drainTime))
		if conn.Flush() != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, r.Body, drainBytes); err != io.EOF && !isLarge(r) {
			endInput(r) // after a large one the server ends the connection itself, gently
		}
	}
}
