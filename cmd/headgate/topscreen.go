package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/daemon"
)

const (
	topEvery   = time.Second
	topBlock   = 10 * time.Minute // a block from the screen
	leastWidth = 40
)

// topScreen is what top shows on a terminal, and what its keys do. It draws and
// decides, and does neither I/O nor waiting.
type topScreen struct {
	flags    topFlags
	rows     []daemon.TopRow
	lost     uint64
	picked   int           // position among rows
	asking   bool          // to block the row picked
	target   daemon.TopRow // whom
	paused   bool          // rows stay as they are
	message  string        // of what was done last
	fault    string        // why rows are old
	now      func() time.Time
	width, n int // columns, and rows of the terminal
}

// What a key asks for beyond the screen.
type topAction int

const (
	topNothing topAction = iota
	topQuit
	topDoBlock
)

// Keys, as key gives them to press.
const (
	keyUp   = 'k'
	keyDown = 'j'
)

// press does what a key says.
func (s *topScreen) press(key byte) topAction {
	if s.asking {
		s.asking = false
		if key == 'y' || key == 'Y' {
			return topDoBlock
		}
		s.message = "not blocked"
		return topNothing
	}
	switch key {
	case 'q', 'Q', 3, 4: // Ctrl-C and Ctrl-D where they do not interrupt
		return topQuit
	case keyUp:
		s.picked = max(0, s.picked-1)
	case keyDown:
		s.picked = max(0, min(len(s.rows)-1, s.picked+1))
	case 's':
		i := slices.Index(topSorts, s.flags.sort)
		s.flags.sort = topSorts[(i+1)%len(topSorts)]
		orderTop(s.rows, s.flags.sort)
	case 'g':
		s.flags.gate = map[string]string{"": "network", "network": "http", "http": ""}[s.flags.gate]
		s.picked = 0
	case ' ':
		s.paused = !s.paused
	case 'b':
		s.askToBlock()
	}
	return topNothing
}

func (s *topScreen) askToBlock() {
	if s.picked >= len(s.rows) {
		return
	}
	s.target = s.rows[s.picked]
	if _, ok := topSource(s.target); !ok {
		s.message = whoIs(s.target) + " is no address: a rule or an override holds a key or user"
		return
	}
	s.asking = true
}

// show takes new rows. Who was picked stays picked while he is among them.
func (s *topScreen) show(t daemon.Top) {
	s.fault = ""
	if s.paused || s.asking {
		return
	}
	was := ""
	if s.picked < len(s.rows) {
		was = rowName(s.rows[s.picked])
	}
	s.rows, s.lost = t.Rows, t.Lost
	if i := slices.IndexFunc(s.rows, func(r daemon.TopRow) bool { return rowName(r) == was }); i >= 0 {
		s.picked = i
	}
	s.picked = max(0, min(s.picked, len(s.rows)-1))
}

func rowName(r daemon.TopRow) string { return r.Gate + " " + r.Rule + " " + r.Reason + " " + whoIs(r) }

// lines draws the screen, as many lines as there is room for, none wider than
// the terminal.
func (s *topScreen) lines() []string {
	width := max(s.width, leastWidth)
	head := fmt.Sprintf("headgate top: last %s, by %s", s.flags.window, s.flags.sort)
	if s.flags.gate != "" {
		head += ", " + s.flags.gate + " gate"
	}
	if s.flags.rule != "" {
		head += ", rule " + s.flags.rule
	}
	if s.paused {
		head += ", PAUSED"
	}
	head += "  " + s.now().UTC().Format("15:04:05 UTC")
	out := []string{cut(head, width), bold + topLine(topRows(nil)[0], width) + plain}
	room := max(s.n-len(out)-2, 1)
	first := max(0, s.picked-room+1)
	for i := first; i < len(s.rows) && i < first+room; i++ {
		line := topLine(topCells(s.rows[i]), width)
		if i == s.picked {
			line = reverse + line + plain
		}
		out = append(out, line)
	}
	if len(s.rows) == 0 {
		out = append(out, cut("nobody sent or asked anything", width))
	}
	return append(out, "", cut(s.foot(), width))
}

func (s *topScreen) foot() string {
	switch {
	case s.asking:
		p, _ := topSource(s.target)
		return fmt.Sprintf("block %s for %s? y/n", address(p), daemon.Span(int64(topBlock/time.Second)))
	case s.fault != "":
		return s.fault
	case s.message != "":
		return s.message
	}
	return "up/down pick   b block   s sort   g gate   space pause   q quit"
}

// topLine lays cells out in columns: names get what numbers leave.
func topLine(cells []string, width int) string {
	const gate, number, last = 7, 10, 8
	names := width - gate - 2*number - last - 5
	rule := min(max(names*2/5, 8), 24)
	return cut(fmt.Sprintf("%-*s %-*s %-*s %*s %*s %*s", gate, cut(cells[0], gate), rule, cut(cells[1], rule),
		names-rule, cut(cells[2], names-rule), number, cells[3], number, cells[4], last, cells[5]), width)
}

// cut shortens s to so many characters.
func cut(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:max(width-1, 0)]) + "~"
}

// watchTop shows the screen until its user quits.
func watchTop(ctx context.Context, e *env, t *terminal, f topFlags, query string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	// asked once before the screen is taken, so that a fault is told in the usual way
	first, err := fetchTop(ctx, e, f, query)
	if err != nil {
		return err
	}
	s := &topScreen{flags: f, now: time.Now}
	s.show(first)
	if err := t.take(); err != nil {
		return fmt.Errorf("read keys from the terminal: %w (take --once)", err)
	}
	defer t.giveBack()
	keys := make(chan byte)
	go readKeys(ctx, t, keys)
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	for {
		s.width, s.n = t.size()
		if _, err := t.out.WriteString(home + strings.Join(s.lines(), endOfLine+"\r\n") + endOfLine + endOfScreen); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
			continue
		case <-tick.C:
		case key, ok := <-keys:
			if !ok {
				return nil
			}
			switch s.press(key) {
			case topQuit:
				return nil
			case topDoBlock:
				s.block(ctx, e)
			}
			if key != 'g' {
				continue
			}
		}
		if now, err := fetchTop(ctx, e, s.flags, query); err != nil {
			s.fault = err.Error()
		} else {
			s.show(now)
		}
	}
}

// block blocks whom the screen asked about.
func (s *topScreen) block(ctx context.Context, e *env) {
	p, _ := topSource(s.target)
	q := daemon.EntryRequest{Prefix: p, For: int64(topBlock / time.Second), Reason: "by hand, from top", Peer: sshPeer(e)}
	var r daemon.EntryReply
	if err := e.ask(ctx, http.MethodPost, blockList.path, q, &r); err != nil {
		s.message = err.Error()
		return
	}
	s.message = fmt.Sprintf("blocked %s %s; undo: headgate unblock %s", address(p), lasting(r.Entry), address(p))
}

// readKeys sends keys until the terminal ends. Arrows come as three bytes.
func readKeys(ctx context.Context, t *terminal, keys chan<- byte) {
	defer close(keys)
	buf := make([]byte, 16)
	for {
		n, err := t.in.Read(buf)
		if err != nil || n == 0 {
			return
		}
		for _, key := range decodeKeys(buf[:n]) {
			select {
			case keys <- key:
			case <-ctx.Done():
				return
			}
		}
	}
}

// decodeKeys turns the arrows up and down into keys, and leaves out other
// sequences.
func decodeKeys(b []byte) (keys []byte) {
	for i := 0; i < len(b); i++ {
		if b[i] != 0x1b {
			keys = append(keys, b[i])
			continue
		}
		if i+2 < len(b) && (b[i+1] == '[' || b[i+1] == 'O') {
			switch b[i+2] {
			case 'A':
				keys = append(keys, keyUp)
			case 'B':
				keys = append(keys, keyDown)
			}
			i += 2
		}
	}
	return keys
}
