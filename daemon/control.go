package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// controlGroup may use the control socket, if the system has such a group.
const controlGroup = "headgate"

// listenControl opens the control socket for root and the group. A socket that
// nobody answers on was left by a daemon that was killed, and is replaced.
func listenControl(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("open control socket %s: another daemon answers on it (name another: --socket or admin.socket)", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the old control socket: %w", err)
		}
	}
	// No moment in which others could connect: the mode is right from birth.
	old := unix.Umask(0o117)
	ln, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("open control socket %s: %w (a path has at most 107 bytes, and nothing else may be in its place)", path, err)
	}
	if gid, ok := lookupGroup(controlGroup); ok {
		if err := os.Chown(path, -1, gid); err != nil && !errors.Is(err, fs.ErrPermission) {
			ln.Close()
			return nil, fmt.Errorf("give the control socket to group %s: %w", controlGroup, err)
		}
	}
	return ln, nil
}

func lookupGroup(name string) (int, bool) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, false
	}
	gid, err := strconv.Atoi(g.Gid)
	return gid, err == nil
}

type peerKey struct{}

// withPeer notes who is at the other end, by what the kernel says (unix(7),
// SO_PEERCRED), for the record of changes.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || cred == nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

// controlHandler answers what the control socket is asked; see api.go.
func (d *daemon) controlHandler() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /v1/status", answerWith(d.log, func(r *http.Request) (any, error) { return d.snapshot(r.Context()), nil }))
	m.Handle("GET /v1/rules", answerWith(d.log, func(r *http.Request) (any, error) { return d.rules(r.Context()), nil }))
	m.Handle("POST /v1/rules", answerWith(d.log, func(r *http.Request) (any, error) {
		var q RuleRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		reply, err := d.addRule(r.Context(), q, who(r, d.now()))
		if err == nil && q.AllHosts {
			reply.Fleet = d.tell(r.Context())
		}
		return reply, err
	}))
	m.Handle("DELETE /v1/rules/{name}", answerWith(d.log, func(r *http.Request) (any, error) {
		reply, err := d.removeRule(r.Context(), r.PathValue("name"), forAllHosts(r), who(r, d.now()))
		if err == nil && forAllHosts(r) {
			reply.Fleet = d.tell(r.Context())
		}
		return reply, err
	}))
	d.handleEntries(m, blocks)
	d.handleEntries(m, allows)
	d.handleVouches(m)
	d.handleOverrides(m)
	d.handleMends(m)
	d.handleTrials(m)
	d.handleTop(m)
	d.handleEvents(m)
	d.handleCapture(m)
	m.Handle("POST /v1/reload", answerWith(d.log, func(r *http.Request) (any, error) {
		var q ReloadRequest
		if r.ContentLength != 0 {
			if err := decode(r, &q); err != nil {
				return nil, err
			}
		}
		reply, err := d.reloadFor(r.Context(), true, q, who(r, d.now()))
		if err != nil {
			err = &refusal{codeOf(err), err.Error()} // it has been logged
		}
		return reply, err
	}))
	m.Handle("POST /v1/reattach", answerWith(d.log, func(r *http.Request) (any, error) {
		var q ReattachRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		reply, err := d.network.reattach(q)
		if err == nil && reply.Was != reply.AttachMode {
			d.note(change{what: "reattach", subject: reply.Interface, detail: reply.Was + " to " + reply.AttachMode, who: who(r, d.now())})
		}
		return reply, err
	}))
	m.Handle("POST /v1/detach", answerWith(d.log, func(r *http.Request) (any, error) {
		names, err := d.network.detachAll()
		d.log.Warn("network gate detached", "by", who(r, d.now()).By, "interfaces", names, "err", err)
		if err == nil {
			d.note(change{what: "detach", subject: strings.Join(names, ", "), who: who(r, d.now())})
		}
		return DetachReply{Interfaces: names}, err
	}))
	m.Handle("/", answerWith(d.log, func(r *http.Request) (any, error) {
		return nil, notThere("no %s %s here: ask for /v1/status, /v1/rules, /v1/blocks or /v1/allows; POST /v1/reload or /v1/detach", r.Method, r.URL.Path)
	}))
	return m
}

func (d *daemon) handleEntries(m *http.ServeMux, k kind) {
	path := "/v1/" + k.name + "s"
	m.Handle("GET "+path, answerWith(d.log, func(*http.Request) (any, error) { return d.entries(k), nil }))
	m.Handle("POST "+path, answerWith(d.log, func(r *http.Request) (any, error) {
		var q EntryRequest
		if err := decode(r, &q); err != nil {
			return nil, err
		}
		reply, err := d.addEntry(r.Context(), k, q, who(r, d.now()))
		if err == nil && k.name == blocks.name { // with nothing held: the HTTP gate may be slow to answer
			reply.Sources, reply.Vouched = d.seenIn(r.Context(), reply.Entry.Prefix)
		}
		if err == nil && q.AllHosts {
			reply.Fleet = d.tell(r.Context())
		}
		return reply, err
	}))
	m.Handle("GET "+path+"/batch", answerWith(d.log, func(*http.Request) (any, error) {
		return BatchProgress{Pending: d.unfilled.Load()}, nil
	}))
	m.Handle("POST "+path+"/batch", answerWith(d.log, func(r *http.Request) (any, error) {
		var q BatchRequest
		if err := decodeUpTo(maxBatch, r, &q); err != nil {
			return nil, err
		}
		return d.addBatch(r.Context(), k, q, who(r, d.now()))
	}))
	m.Handle("DELETE "+path, answerWith(d.log, func(r *http.Request) (any, error) {
		q := r.URL.Query()
		p, err := netip.ParsePrefix(q.Get("prefix"))
		if err != nil {
			return nil, badInput("prefix: %v", err)
		}
		var reason *string
		if q.Has("reason") {
			text := q.Get("reason")
			reason = &text
		}
		removal := EntryRemoval{p, reason, q.Get("force") == "true", forAllHosts(r)}
		reply, err := d.removeEntry(r.Context(), k, removal, who(r, d.now()))
		if err == nil && removal.AllHosts {
			reply.Fleet = d.tell(r.Context())
		}
		return reply, err
	}))
}

// maxBatch bounds the body of a batch: a few million prefixes.
const maxBatch = 128 << 20

func decode(r *http.Request, v any) error { return decodeUpTo(1<<20, r, v) }

func decodeUpTo(most int64, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, most))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return badInput("request body: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return badInput("request body: more than one JSON value")
	}
	return nil
}

// answerWith writes what do returns, as JSON. Failures that changed nothing by
// intent are the asker's to know; the others are logged as well.
func answerWith(log *slog.Logger, do func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := do(r)
		code := http.StatusOK
		if err != nil {
			code = codeOf(err)
			v = Problem{Error: err.Error()}
			if code >= 500 && !errors.As(err, new(*refusal)) {
				log.Error("change failed", "request", r.Method+" "+r.URL.Path, "err", err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.Encode(v)
	})
}

func codeOf(err error) int {
	var refused *refusal
	var config *ConfigError
	switch {
	case errors.As(err, &refused):
		return refused.code
	case errors.As(err, &config):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
