package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
)

// bodySize is what the upstream answers, bytes.
const bodySize = 1 << 10

var upstreamAnswer = fmt.Appendf(nil,
	"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", bodySize, strings.Repeat("headgate", bodySize/8))

// Upstream answers every request that arrives at ln with the same 1 KiB, until ln
// is closed. It takes requests without a body only.
func Upstream(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("upstream: %w", err)
		}
		go serve(c)
	}
}

func serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(bytes.TrimRight(line, "\r\n")) > 0 {
			continue
		}
		if _, err := c.Write(upstreamAnswer); err != nil {
			return
		}
	}
}
