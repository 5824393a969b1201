package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// terminal is where a command talks to a person.
type terminal struct {
	in, out *os.File
	before  *unix.Termios
}

// terminalOf returns the terminal that a command runs on; nil where input or
// output is none.
func terminalOf(e *env) *terminal {
	in, ok1 := e.in.(*os.File)
	out, ok2 := e.out.(*os.File)
	if !ok1 || !ok2 || e.getenv("TERM") == "dumb" {
		return nil
	}
	for _, f := range []*os.File{in, out} {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
			return nil
		}
	}
	return &terminal{in: in, out: out}
}

// size is how many columns and rows there are; 80 and 24 where it does not say.
func (t *terminal) size() (columns, rows int) {
	s, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || s.Col == 0 || s.Row == 0 {
		return 80, 24
	}
	return int(s.Col), int(s.Row)
}

// Escape sequences of ECMA-48 and xterm.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // and no cursor
	firstScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	endOfLine   = "\x1b[K"
	endOfScreen = "\x1b[J"
	reverse     = "\x1b[7m"
	bold        = "\x1b[1m"
	plain       = "\x1b[0m"
)

// take lets each key be read as it is pressed, and gives a screen of its own.
// Ctrl-C still interrupts.
func (t *terminal) take() error {
	was, err := unix.IoctlGetTermios(int(t.in.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	raw := *was
	raw.Lflag &^= unix.ICANON | unix.ECHO
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &raw); err != nil {
		return err
	}
	t.before = was
	_, err = t.out.WriteString(otherScreen)
	return err
}

// giveBack makes the terminal what it was.
func (t *terminal) giveBack() error {
	_, err := t.out.WriteString(plain + firstScreen)
	return errors.Join(err, unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, t.before))
}
