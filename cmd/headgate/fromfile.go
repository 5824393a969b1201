package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/daemon"
)

// batchTime is how long the daemon may take for a whole file.
const batchTime = 10 * time.Minute

// longFile is the help of --from-file, for block and for allow.
const longFile = `

With --from-file many prefixes are taken from a file, or from standard input
for "-": one address or prefix a line, comments after "#" or ";". All of them
are taken or none. Broken lines are reported all at once, and nothing is done;
with --skip-bad the others are taken.`

func (f *entryFlags) addFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "from-file", "", "take the prefixes of `file`, one a line; - is standard input")
	cmd.Flags().BoolVar(&f.skipBad, "skip-bad", false, "with --from-file: leave out broken lines instead of refusing the file")
}

// needPrefixes wants one argument, or none with --from-file.
func (f *entryFlags) needPrefixes(cmd *cobra.Command, args []string) error {
	switch {
	case f.file != "" && len(args) > 0:
		return badf("give an address or prefix, or --from-file, not both (%s)", strings.Join(args, " "))
	case f.file != "" && f.all:
		return badf("--all-hosts is for single entries: for a file, name a list in the config of all hosts (see docs/lists.md)")
	case f.file != "":
		return nil
	case f.skipBad:
		return badf("--skip-bad is for --from-file")
	}
	return need("address or prefix")(cmd, args)
}

// putFile adds the prefixes of a file to the list.
func (l list) putFile(ctx context.Context, e *env, f entryFlags) error {
	file, err := f.read(e)
	if err != nil {
		return err
	}
	seconds, note, err := f.lasting()
	if err != nil {
		return err
	}
	q := daemon.BatchRequest{Prefixes: file.Prefixes, For: seconds, Ever: f.ever, Reason: f.reason, Force: f.force, Peer: sshPeer(e)}
	c, err := e.client()
	if err != nil {
		return err
	}
	c.wait = batchTime
	var r daemon.BatchReply
	stop := l.showProgress(ctx, e, len(file.Prefixes))
	err = c.ask(ctx, http.MethodPost, l.path+"/batch", q, &r)
	stop()
	if err != nil {
		return err
	}
	if done, err := e.asJSON(fileReply{r, len(file.Broken), file.Twice}); done {
		return err
	}
	fmt.Fprintf(e.out, "%s %s %s%s\n", l.done, counted(r.Prefixes, "prefix", "prefixes"), lasting(daemon.Entry{End: r.End, EndsIn: r.EndsIn}), note)
	fmt.Fprintln(e.out, strings.Join(file.tally(r), ", "))
	return nil
}

// fileReply is what is printed of it as JSON.
type fileReply struct {
	daemon.BatchReply
	Skipped int `json:"skipped"`    // broken lines
	Twice   int `json:"duplicates"` // lines that repeat a prefix
}

// listFile is a file of prefixes that may be used.
type listFile struct{ config.PrefixFile }

// read reads the file. Unless they are to be skipped, broken lines are errors
// with file and line.
func (f *entryFlags) read(e *env) (listFile, error) {
	in, name := e.in, "standard input"
	if f.file != "-" {
		opened, err := os.Open(f.file)
		if err != nil {
			return listFile{}, badf("--from-file: %w", err)
		}
		defer opened.Close()
		in, name = opened, f.file
	}
	file, err := config.ReadPrefixes(name, in)
	switch {
	case err != nil:
		return listFile{}, badInput{err}
	case len(file.Broken) > 0 && !f.skipBad:
		return listFile{}, badInput{brokenLines{file.Broken}}
	case len(file.Prefixes) == 0:
		return listFile{}, badf("%s holds no prefix (%d broken lines)", name, len(file.Broken))
	}
	for _, broken := range file.Broken {
		fmt.Fprintln(e.err, "skipped: "+broken.Error())
	}
	return listFile{file}, nil
}

// brokenLines are the faults of a list, with what may be done.
type brokenLines struct{ config.Errors }

func (b brokenLines) Error() string {
	return fmt.Sprintf("%s\n%s, so nothing was changed: mend the file, or leave them out with --skip-bad",
		b.Errors, counted(len(b.Errors), "broken line", "broken lines"))
}

func (b brokenLines) Unwrap() error { return b.Errors }

// tally says what became of the lines, leaving out what did not happen.
func (f listFile) tally(r daemon.BatchReply) []string {
	parts := []string{fmt.Sprintf("%d new", r.Added)}
	for _, p := range []struct {
		n    int
		what string
	}{
		{r.Unchanged, "unchanged"},
		{r.Extended, "with a later end than before"},
		{r.Longer, "that end later already and keep that end"},
		{f.Twice, "duplicate lines"},
		{len(f.Broken), "broken lines skipped"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return parts
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// showProgress keeps a line on a terminal up to date until stop is called. On
// anything else it prints nothing.
func (l list) showProgress(ctx context.Context, e *env, total int) (stop func()) {
	f, ok := e.err.(*os.File)
	if !ok || !isTerminal(f) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				io.WriteString(f, "\r\x1b[K")
				return
			case <-tick.C:
				l.printProgress(ctx, e, f, total)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// printProgress overwrites the line. What cannot be asked is not shown: the
// answer to the change itself tells what is wrong.
func (l list) printProgress(ctx context.Context, e *env, out io.Writer, total int) {
	var p daemon.BatchProgress
	if err := e.ask(ctx, http.MethodGet, l.path+"/batch", nil, &p); err != nil && !errors.Is(err, context.Canceled) {
		return
	}
	if p.Pending > 0 {
		fmt.Fprintf(out, "\r\x1b[K%s %d of %d", l.done, max(0, total-int(p.Pending)), total)
	} else {
		fmt.Fprintf(out, "\r\x1b[K%d prefixes: being checked", total)
	}
}
